"""The reason of a trainer's end if it received a signal before its worker did."""

from __future__ import annotations

import json
import sys
from queue import SimpleQueue
from typing import Any

import pytest

from gpt2core.process.child import Exited, Waiting
from gpt2core.process.launch import EXIT_CANCELLED
from taskloom.worker import supervise
from taskloom.worker.agent import Agent, DrainAsked, StopReason
from taskloom.worker.settings import Drain
from taskloom.worker.supervise import Supervisor
from tests.support.leases import lease


class LateSignal(SimpleQueue[Any]):
    """An inbox in which the worker's own signal arrives after the trainer's end."""

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        super().put(item, block, timeout)
        if isinstance(item, Exited):
            super().put(DrainAsked())


def reason_of(inbox: SimpleQueue[Any], drain: Drain, code: int) -> StopReason | None:
    agent = Agent(drain)
    agent.claim(lease())
    trainer = Waiting([sys.executable, "-c", f"raise SystemExit({code})"])
    ending = Supervisor(agent, inbox).run(trainer, {}, 240.0, lambda _: None, lambda: None, lambda _: None)
    assert ending.code == code
    return ending.reason


@pytest.mark.parametrize(
    ("drain", "code", "reason"),
    [
        ("release", EXIT_CANCELLED, StopReason.RELEASE),
        ("finish", EXIT_CANCELLED, None),
        ("release", 1, None),
    ],
)
def test_a_trainer_that_ends_before_the_workers_own_signal_hands_its_run_back(
    drain: Drain, code: int, reason: StopReason | None
) -> None:
    assert reason_of(LateSignal(), drain, code) is reason


def test_a_trainer_that_somebody_else_stops_is_not_handed_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervise, "OWN_SIGNAL_S", 0.0)
    assert reason_of(SimpleQueue(), "release", EXIT_CANCELLED) is None


def test_the_first_error_of_several_ranks_is_that_of_the_run() -> None:
    agent = Agent("finish")
    agent.claim(lease())
    about = {"event": "error", "detail": "", "exit_code": 2}
    lines = [json.dumps({**about, "slug": each}) for each in ("cause", "effect")]
    trainer = Waiting([sys.executable, "-c", f"print({chr(10).join(lines)!r})\nraise SystemExit(2)"])
    inbox: SimpleQueue[Any] = SimpleQueue()
    ending = Supervisor(agent, inbox).run(trainer, {}, 240.0, lambda _: None, lambda: None, lambda _: None)
    assert ending.error is not None
    assert ending.error["slug"] == "cause"
