"""The heartbeat loop against a real HTTP server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

import pytest

from taskloom.worker.agent import Agent, StopAsked, StopReason
from taskloom.worker.client import ServerClient
from taskloom.worker.heartbeat_loop import HeartbeatLoop
from taskloom.worker.report import Report
from tests.support.http_double import Script, scripted
from tests.support.leases import lease
from tests.support.patience import until

PROBLEM = {"Content_Type": "application/problem+json"}
FINE = {"cancel": False, "expires_at": "2026-01-01T00:00:00Z"}
DEADLINE_S = 30.0


class Beats:
    def __init__(self, script: Script, heartbeat_s: float) -> None:
        self.script, self.inbox = script, SimpleQueue[Any]()
        held = lease(5).model_copy(update={"heartbeat_s": heartbeat_s})
        self.agent = Agent("finish")
        self.agent.claim(held)
        self.client = ServerClient(script.url, None)
        self.loop = HeartbeatLoop(self.client, "n:0", held, self.agent, self.inbox, Report(as_json=False))

    def asked(self) -> StopAsked:
        found = self.inbox.get(timeout=DEADLINE_S)
        assert isinstance(found, StopAsked)
        return found


@pytest.fixture
def beats() -> Iterator[Beats]:
    with scripted() as script:
        made = Beats(script, heartbeat_s=0.01)
        yield made
        made.loop.stop()
        made.client.close()


@pytest.fixture
def slow_beats() -> Iterator[Beats]:
    with scripted() as script:
        made = Beats(script, heartbeat_s=1000.0)
        yield made
        made.loop.stop()
        made.client.close()


def test_beats_go_on_until_a_cancellation_is_heard(beats: Beats) -> None:
    beats.agent.note({"event": "step", "step": 3, "steps": 12, "loss": 5.0, "tokens_per_s": 9.0})
    for answer in (FINE, FINE, {**FINE, "cancel": True}):
        beats.script.answer(200, answer)
    beats.script.answers += [(200, FINE, {})] * 1000
    beats.loop.start()
    assert beats.asked() == StopAsked(5, StopReason.CANCEL)
    assert json.loads(beats.script.asked[0].body) == {
        "worker_id": "n:0",
        "attempt_no": 1,
        "progress": {"stage": "training", "step": 3, "steps": 12, "loss": 5.0, "tokens_per_s": 9.0},
    }


def test_a_deadline_that_the_server_saw_first_is_no_cancellation(beats: Beats) -> None:
    beats.script.answer(200, {**FINE, "cancel": True, "overdue": True})
    beats.script.answers += [(200, FINE, {})] * 1000
    beats.loop.start()
    assert beats.asked() == StopAsked(5, StopReason.DEADLINE)


def test_a_server_that_is_down_for_a_while_costs_nothing_but_time(beats: Beats) -> None:
    beats.script.answer(503, b"", Retry_After="300")  # longer than the lease
    beats.script.answer(500, b"")
    beats.script.answer(200, {**FINE, "cancel": True})
    beats.script.answers += [(200, FINE, {})] * 1000
    beats.loop.start()
    assert beats.asked() == StopAsked(5, StopReason.CANCEL)


@pytest.mark.parametrize("answer", [(502, b"<html>", {"Content-Encoding": "gzip"}), (200, FINE, {})])
def test_no_failure_of_a_heartbeat_ends_the_heartbeats(
    beats: Beats, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], answer: Any
) -> None:
    """Neither an answer that cannot be decoded nor, in the second case, a defect of our own."""
    beats.script.answers.append(answer)
    beats.script.answer(200, {**FINE, "cancel": True})
    beats.script.answers += [(200, FINE, {})] * 1000
    if answer[0] == 200:
        first = iter([True])
        acknowledge = beats.agent.steps.next

        def broken() -> Any:
            if next(first, False):
                raise RuntimeError("a defect")
            return acknowledge()

        monkeypatch.setattr(beats.agent.steps, "next", broken)
    beats.loop.start()
    assert beats.asked() == StopAsked(5, StopReason.CANCEL)
    printed = capsys.readouterr()
    assert ("RuntimeError: a defect" in printed.out + printed.err) is (answer[0] == 200)


def test_a_proxys_404_is_no_lost_lease(beats: Beats) -> None:
    beats.script.answer(404, b"<html>no such site</html>")
    beats.script.answer(200, {**FINE, "cancel": True})
    beats.script.answers += [(200, FINE, {})] * 1000
    beats.loop.start()
    assert beats.asked() == StopAsked(5, StopReason.CANCEL)


@pytest.mark.parametrize("status", [404, 409, 410])
def test_a_lease_that_is_lost_is_reported_at_once_and_no_more_beats_follow(beats: Beats, status: int) -> None:
    beats.script.answer(status, {"type": "/problems/lease-lost", "title": "gone"}, **PROBLEM)
    beats.loop.start()
    assert beats.asked() == StopAsked(5, StopReason.LEASE_LOST)
    assert len(beats.script.asked) == 1


def test_the_first_beat_does_not_wait_and_a_nudge_brings_the_next(slow_beats: Beats) -> None:
    slow_beats.script.answer(200, FINE)
    slow_beats.script.answer(200, {**FINE, "cancel": True})
    slow_beats.loop.start()
    slow_beats.loop.nudge()
    assert slow_beats.asked().reason is StopReason.CANCEL


def test_an_answer_that_comes_after_the_end_is_not_heeded(slow_beats: Beats) -> None:
    slow_beats.loop.stop()
    slow_beats.script.answer(409, {"type": "/problems/lease-lost"}, **PROBLEM)
    slow_beats.loop._run()
    assert slow_beats.inbox.empty()
    assert slow_beats.script.asked == []


def test_a_line_is_sent_soon_and_again_until_it_is_taken(slow_beats: Beats) -> None:
    script = slow_beats.script
    for status, body in ((200, FINE), (503, b""), (200, FINE)):
        script.answer(status, body)
    slow_beats.loop.start()
    while len(script.asked) < 1:
        continue
    slow_beats.loop.printed("ready")
    slow_beats.loop.send_last_lines()
    sent = [json.loads(asked.body).get("output") for asked in script.asked]
    assert sent == [None, {"first": 1, "lines": ["ready"]}, {"first": 1, "lines": ["ready"]}]


def test_lines_of_a_lost_lease_keep_nobody_waiting(slow_beats: Beats) -> None:
    slow_beats.script.answer(409, {"type": "/problems/lease-lost", "title": "lost", "status": 409}, **PROBLEM)
    slow_beats.loop.printed("nobody hears this")
    slow_beats.loop.start()
    assert slow_beats.asked().reason is StopReason.LEASE_LOST
    slow_beats.loop.send_last_lines()


def test_steps_are_sent_once(slow_beats: Beats) -> None:
    script = slow_beats.script
    slow_beats.agent.note({"event": "step", "step": 1, "steps": 9, "loss": 5.0, "step_s": 0.5})
    for _ in range(2):
        script.answer(200, FINE)
    script.answer(200, {**FINE, "cancel": True})
    slow_beats.loop.start()
    for step in (2, 3):
        until(lambda: len(script.asked) == step - 1, "the heartbeat before")  # noqa: B023 - called at once
        slow_beats.agent.note({"event": "step", "step": step, "steps": 9, "loss": 4.0, "step_s": 0.25})
        slow_beats.loop.nudge()
    assert slow_beats.asked().reason is StopReason.CANCEL
    steps = [json.loads(asked.body)["steps"] for asked in script.asked]
    assert [(sent["first"], sent["step_s"], sent["loss"]) for sent in steps] == [
        (1, [0.5], [5.0]), (2, [0.25], [4.0]), (3, [0.25], [4.0]),
    ]  # fmt: skip
