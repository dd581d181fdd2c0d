"""Answers of proxies, portals and other programs: each is no answer, or an error of ours, and no loop spins."""

from __future__ import annotations

import contextlib
import gzip
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from gpt2core.node import peaks
from gpt2core.process import launch
from taskloom import Client, events
from taskloom.contract import http
from taskloom.contract.attempts import Progress
from taskloom.contract.retry import Unreachable, parse_retry_after_s
from taskloom.errors import Problem, ServerUnreachable, TaskloomError
from taskloom.events import Event
from taskloom.worker.agent import Agent
from taskloom.worker.claim_loop import ClaimLoop
from taskloom.worker.client import ServerClient
from taskloom.worker.execution import Executor
from taskloom.worker.peaks import Measurement
from taskloom.worker.report import Report
from taskloom.worker.settings import parse
from taskloom.worker.spool import Spool
from taskloom.worker.supervise import Supervisor
from tests.support.http_clients import ANSWERS, FAILURES, ask
from tests.support.http_double import Script, scripted

CHARSETS = ("base64", "undefined", "idna", "unicode_escape", "utf-7", "rot13", "no-such-charset", "")
DATES = (
    "Mon, 1 Jan 99999999999999999999 00:00:00 GMT", "Mon, 1 Jan 0001 00:00:00 -0000", "Mon, 99 Foo 2026 99:99:99 GMT",
    "Mon, 1 Jan 2026 00:00:00 +99999999", "1e999", "-1", "nan", "soon", ",", "\xb2",
)  # fmt: skip
PROBLEMS = (
    b'{"type": "/problems/x", "status": ' + b"1" * 5000 + b"}", b"[" * 100_000, b'{"type": 7}', b"\xff\xfe", b"",
)  # fmt: skip


@pytest.mark.parametrize("date", DATES)
def test_a_time_to_retry_that_is_none_is_left_out(date: str) -> None:
    assert parse_retry_after_s(date) in (None, 0.0)
    with scripted() as script:
        script.answer(503, b"<html>", Retry_After=date)
        with pytest.raises(FAILURES), contextlib.suppress(Problem):
            ask("worker", script.url)


@pytest.mark.parametrize("kind", ANSWERS)
@pytest.mark.parametrize("body", PROBLEMS)
@pytest.mark.parametrize("status", [200, 403, 503])
def test_a_problem_that_cannot_be_read_is_another_programs(kind: str, body: bytes, status: int) -> None:
    with scripted() as script:
        script.answer(status, body, Content_Type="application/problem+json")
        if (kind, status) == ("worker", 200):
            ask(kind, script.url)  # the answer to `leave` has no content
            return
        with pytest.raises((*FAILURES, TaskloomError)):
            ask(kind, script.url)


@pytest.mark.parametrize("charset", CHARSETS)
def test_the_text_of_another_program_is_shown_whatever_its_charset(charset: str) -> None:
    with scripted() as script, Client(script.url) as client:
        script.answer(502, b"<html>bad gateway \xfc</html>", Content_Type=f"text/html; charset={charset}")
        with pytest.raises(Problem, match="bad gateway"):
            client.run(1)


@contextlib.contextmanager
def trickle(head: bytes, part: bytes, every_s: float) -> Iterator[str]:
    """The URL of a program whose answer goes on until its client leaves: `head`, then `part` again and again."""
    ended = threading.Event()

    def serve() -> None:
        with contextlib.suppress(OSError):
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(head)
                while not ended.wait(every_s):
                    connection.sendall(part)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            ended.set()
            listener.close()
            thread.join()


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"


def test_an_answer_to_a_heartbeat_that_trickles_ends_with_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A filter may pass a byte every few seconds on. The lease would end meanwhile."""
    monkeypatch.setattr("taskloom.worker.client.BEAT_ANSWER_S", 1.0)
    with trickle(HEAD, b"1\r\n \r\n", 0.05) as url:
        client = ServerClient(url, None)
        with pytest.raises(Unreachable, match=r"did not arrive whole within 1 s|timed out"):
            client.heartbeat(5, "n:0", 1, Progress())
        client.close()


def test_an_answer_without_end_is_not_kept_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MOST_BYTES", 100_000)
    with trickle(HEAD, b"2000\r\n" + b" " * 0x2000 + b"\r\n", 0.0) as url:
        client = ServerClient(url, None)
        with pytest.raises(Unreachable, match="the answer has more than 100,000 bytes"):
            client.heartbeat(5, "n:0", 1, Progress())
        client.close()


def test_an_answer_is_unpacked_within_the_same_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MOST_BYTES", 100_000)
    answer = json.dumps({"needs": [], "workers": []}).encode()
    with scripted() as script:
        script.answer(200, gzip.compress(answer + b" " * 90_000), Content_Encoding="GZip")
        ask("provisioner", script.url)
        assert script.asked[0].headers["Accept-Encoding"] == "gzip"
        script.answer(200, gzip.compress(answer + b" " * 200_000), Content_Encoding="gzip")
        with pytest.raises(Unreachable, match="the answer has more than 100,000 bytes"):
            ask("provisioner", script.url)
        for coding in ("gzip, gzip", "br"):
            script.answer(200, gzip.compress(gzip.compress(answer)), Content_Encoding=coding)
            with pytest.raises(Unreachable, match=f"packed by {coding}"):
                ask("provisioner", script.url)


@pytest.mark.parametrize(
    "body", [b"<html>router login</html>", b"", b"data: [1, 2]\n\n", b"data: 7\n\n", b"data: {\n\n",
             b"data: " + b"[" * 100_000 + b"\n\n"],
)  # fmt: skip
def test_events_of_another_program_end_after_some_tries(monkeypatch: pytest.MonkeyPatch, body: bytes) -> None:
    monkeypatch.setattr(events, "AGAIN_S", 0.01)
    with scripted() as script, http.Client(script.url, {}, 10.0) as client:
        script.answers = [(200, body, {"Content-Type": "text/event-stream"})] * 100
        with pytest.raises(ServerUnreachable):
            list(events.listen(client, script.url, ["run:1"], None))
        assert len(script.asked) == events.TRIES + 1


def claims(script: Script) -> int:
    return sum(asked.path.endswith("/leases") for asked in script.asked)


def test_claims_that_are_answered_at_once_do_not_spin(tmp_path: Path) -> None:
    """A server that stops answers claims at once; a portal may answer everything with 204."""
    with scripted() as script:
        script.answers = [(204, b"", {})] * 10_000
        options = ("--server", script.url, "--spool", str(tmp_path), "--worker-id", "w", "--idle-exit", "2s")
        settings = parse([*options, "--peaks", "never", "--json"], {})
        agent, inbox, report = Agent("finish"), SimpleQueue[Any](), Report(as_json=True)
        measurement = Measurement(settings, inbox, report, peaks.command)
        spool, supervisor = Spool(tmp_path), Supervisor(agent, inbox, 1.0)
        executor = Executor(settings, supervisor, launch.command, (0,), spool.new_folder)
        client = ServerClient(script.url, None)
        code = ClaimLoop(settings, client, agent, inbox, spool, executor, measurement, report).run()
        client.close()
        spool.close()
        assert code == 0
        assert 1 <= claims(script) <= 40


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_text_of_an_event_may_contain_other_ends_of_lines(end: str) -> None:
    text = "a\u2028b\u2029c\x85d"
    data = json.dumps({"topic": "run:1", "data": {"text": text}}, ensure_ascii=False)
    body = end.join((": alive", "", "id: 7", "event: ended", f"data: {data}", "", "")).encode()
    with scripted() as script, http.Client(script.url, {}, 10.0) as client:
        script.answer(200, body, Content_Type="text/event-stream")
        assert list(events.listen(client, script.url, ["run:1"], None)) == [Event("run:1", "ended", {"text": text})]
