"""State machine of the agent: inputs in, decisions out. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gpt2core.spec.phases import MODES
from taskloom.contract.attempts import Lease, Progress
from taskloom.worker.settings import Drain
from taskloom.worker.steps import Steps, finite


class Phase(StrEnum):
    WAITING = "waiting"  # for a run
    RUNNING = "running"  # a trainer under a lease
    DELIVERING = "delivering"  # its outcome
    STOPPED = "stopped"


TRANSITIONS: Mapping[str, tuple[tuple[Phase, ...], Phase]] = {
    "claim": ((Phase.WAITING,), Phase.RUNNING),
    "finish": ((Phase.RUNNING,), Phase.DELIVERING),
    "acknowledge": ((Phase.DELIVERING,), Phase.WAITING),
    "stop": (tuple(Phase), Phase.STOPPED),
}


# Stage that an event of the trainer enters; `planned` enters none, since it comes before compiling.
STAGES: Mapping[str, str] = {
    "compiling": "compiling",
    "measuring": "compiling",
    "result": "finishing",
}


class StopReason(StrEnum):
    """Why a running trainer is stopped before its end."""

    CANCEL = "cancelled"
    LEASE_LOST = "lease-lost"
    DEADLINE = "timeout"
    RELEASE = "released"


class InvalidTransition(RuntimeError):
    """The requested action is not possible in the agent's phase."""


@dataclass(frozen=True)
class StopAsked:
    """Message of the heartbeat loop: stop the trainer of this attempt."""

    attempt_id: int
    reason: StopReason


@dataclass(frozen=True)
class DrainAsked:
    """Message of the signal thread: take no further run."""


class Agent:
    """The state of one worker process, owned by the main thread. Others read `progress`, `steps` and `draining`."""

    def __init__(self, drain: Drain) -> None:
        self._drain = drain
        self.phase = Phase.WAITING
        self.draining = False
        self.lease: Lease | None = None
        self.stop_reason: StopReason | None = None
        self.progress = Progress()
        self.stages = STAGES
        self.steps = Steps()

    def claim(self, lease: Lease) -> None:
        self._go("claim")
        self.lease, self.stop_reason = lease, None
        self.progress = Progress(steps=int(lease.spec.get("steps", 0)))
        self.stages = {**STAGES, "step": MODES[lease.spec.get("mode", "train")].stage}
        self.steps = Steps(int(lease.spec.get("evaluate_every", 0)))

    def finish(self) -> None:
        self._go("finish")

    def acknowledge(self) -> None:
        self._go("acknowledge")
        self.lease = None

    def stop(self) -> None:
        self._go("stop")

    def drain(self) -> StopReason | None:
        """Take no further run. Returns the reason to stop the current trainer, or None to let it finish."""
        self.draining = True
        return StopReason.RELEASE if self._drain == "release" and self.phase is Phase.RUNNING else None

    def ask_to_stop(self, reason: StopReason) -> bool:
        """Record why the current trainer is stopped. Returns False if no trainer runs or it is already being stopped.

        The first reason counts. A lost lease overrides it, since the attempt's outcome is then not wanted.
        """
        if self.phase is not Phase.RUNNING:
            return False
        first = self.stop_reason is None
        if first or reason is StopReason.LEASE_LOST:
            self.stop_reason = reason
        return first

    def note(self, event: Mapping[str, Any]) -> bool:
        """Process an event of the trainer; return whether the trainer entered another stage."""
        before, known = self.progress, event.get("event")
        if known == "evaluation":
            self.steps.evaluated(event)
        stage = self.stages.get(str(known))
        if stage is None or self.phase is not Phase.RUNNING:
            return False
        update: dict[str, Any] = {"stage": stage}
        if known == "step":
            update |= {key: event.get(key) for key in ("step", "steps")}
            update |= {key: finite(event.get(key)) for key in ("loss", "tokens_per_s")}
            self.steps.add(event)
        self.progress = Progress.model_validate(before.model_dump() | update)
        return stage != before.stage

    def _go(self, verb: str) -> None:
        sources, target = TRANSITIONS[verb]
        if self.phase not in sources:
            raise InvalidTransition(f"a worker that is {self.phase} cannot {verb}")
        self.phase = target
