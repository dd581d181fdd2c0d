"""Lines that other people's code prints among those of our processes: preloaded libraries, sitecustomize, OpenMP."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest

from gpt2core.process import launch
from gpt2core.spec import printed
from taskloom.processes import ProcessEnded, Processes
from taskloom.server import replicas
from taskloom.server.errors import StartRefused
from taskloom.stopping import Stopping

FOREIGN = "hello from a library\n{\n{}\n[1]\nOPENMP DISPLAY ENVIRONMENT BEGIN\n"
LISTENING = '{"event": "listening", "url": "http://127.0.0.1:1"}\n'


def test_the_servers_address_is_found_among_other_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []

    def start(_: Processes, name: str, *arguments: str) -> io.StringIO:
        started.extend((name, *arguments))
        return io.StringIO(FOREIGN + LISTENING)

    monkeypatch.setattr(Processes, "start", start)
    assert Processes(Stopping(), None).start_both([], []) == "http://127.0.0.1:1"
    assert started == ["server", "worker", "--server", "http://127.0.0.1:1"]
    monkeypatch.setattr(Processes, "start", lambda *_: io.StringIO(FOREIGN))
    with pytest.raises(ProcessEnded, match="the server did not start"):
        Processes(Stopping(), None).start_both([], [])


@pytest.mark.parametrize("last", [LISTENING, ""])
def test_a_replica_listens_once_it_says_so(last: str) -> None:
    program = f"import sys; sys.stdout.write({FOREIGN + last!r})"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as replica:
        if last:
            replicas._wait_until_listening(replica)
        else:
            with pytest.raises(StartRefused):
                replicas._wait_until_listening(replica)


@pytest.mark.parametrize("before", ["", "loading... ", '{"x": 1} ', "100%|####| 3/3\t"])
def test_an_event_after_text_without_a_lines_end_is_one(before: str) -> None:
    assert launch.parse_event(f"{before}{LISTENING}") == {"event": "listening", "url": "http://127.0.0.1:1"}


@pytest.mark.parametrize("line", [
    '{"event": ' + "[" * 100_000, '{"event": "x", "n": ' + "1" * 5000 + "}", '{"event": 1}', '{"event": "x"', "event",
])  # fmt: skip
def test_a_line_that_is_no_event_is_none(line: str) -> None:
    assert launch.parse_event(line) is None


@pytest.mark.parametrize("before", ["", "loading... ", "hello\n{\n[]\n", '{"builds": 1} '])
@pytest.mark.parametrize("after", ["", "saved a profile\n", "\n{}\n"])
def test_a_document_is_found_between_other_text(before: str, after: str) -> None:
    assert printed.document(f'{before}{{"build": "a"}}{after}', '{"build"') == {"build": "a"}


def test_without_its_document_text_is_refused() -> None:
    for text in ("", "{}", '{"build": '):
        with pytest.raises(ValueError):
            printed.document(text, '{"build"')
