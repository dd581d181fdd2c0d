"""Lines that other people's code prints among those of our processes: preloaded libraries, sitecustomize, OpenMP."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest

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
