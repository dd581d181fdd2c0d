"""Effects of a heartbeat, a result, an expiry or a deadline on an attempt and its run. The functions have no I/O and no
clock. They map facts to verbs, and runs/states.py maps verbs to states.
"""

from __future__ import annotations

from dataclasses import dataclass

from taskloom.server.errors import InvalidTransition, LeaseLost
from taskloom.server.queue.tables.states import ACTIVE, ATTEMPT


@dataclass(frozen=True)
class Facts:
    """State of an attempt and its run in the database at the time `now`."""

    attempt_id: int
    attempt_no: int
    attempt_state: str
    deadline_at: float
    run_state: str
    newest_attempt_no: int
    cancel_requested: bool
    losses: int
    now: float
    tracing: bool = False  # the attempt's purpose
    to_trace: bool = False  # the run is to be traced once it has succeeded
    replaced: bool = False  # a new process has registered as the attempt's worker

    @property
    def active(self) -> bool:
        return self.attempt_state in ACTIVE

    @property
    def counts(self) -> bool:
        """Whether the run still waits for this attempt: it is active, or it was lost and no other was claimed since."""
        untaken = self.newest_attempt_no == self.attempt_no and self.run_state in ("queued", "quarantined")
        return self.active or (self.attempt_state == "lost" and untaken)

    @property
    def overdue(self) -> bool:
        return self.now >= self.deadline_at


@dataclass(frozen=True)
class Change:
    """Verbs for the attempt and for the run (None: no change), and whether the result becomes canonical."""

    attempt: str
    run: str | None
    canonical: bool = False


def beat(facts: Facts) -> Change:
    """A heartbeat starts a leased attempt and renews an expired one, unless its worker was replaced meanwhile.

    Raises LeaseLost or InvalidTransition.
    """
    if facts.active:
        return Change("start", "start")
    if facts.counts and not facts.replaced:
        return Change("renew", "renew")
    if facts.attempt_state in ("lost", "superseded"):
        raise LeaseLost(
            f"attempt {facts.attempt_id} lost its lease, and its worker or its run continued without it",
            current=facts.attempt_state,
            allowed=ATTEMPT.allowed(facts.attempt_state),
        )
    raise InvalidTransition(
        f"attempt {facts.attempt_id} is {facts.attempt_state}; it accepts no heartbeat",
        current=facts.attempt_state,
        allowed=ATTEMPT.allowed(facts.attempt_state),
    )


def finish(facts: Facts, outcome: str) -> Change:
    """A result ends the attempt. A late result counts if no newer attempt was claimed; otherwise it is superseded.

    The transition table rejects a result of an attempt that has ended otherwise.
    """
    if not facts.counts:
        return Change("supersede", None)
    if facts.tracing:
        return _traced(facts, outcome)
    if outcome == "succeeded" and facts.to_trace and not facts.cancel_requested:
        return Change("succeed", "trace", canonical=True)
    if outcome == "succeeded":
        return Change("succeed", "succeed", canonical=True)
    if outcome == "failed":
        return Change("fail", "fail", canonical=True)
    if facts.cancel_requested:
        return Change("cancel", "cancel", canonical=True)
    if facts.overdue:
        return Change("fail", "fail", canonical=True)
    return Change("cancel", "requeue" if facts.active else None)  # handed back by a worker that drains


def _traced(facts: Facts, outcome: str) -> Change:
    """The run has its result, so it succeeds however its tracing ends. A tracing that was handed back is queued
    again."""
    if outcome == "cancelled" and not facts.cancel_requested and not facts.overdue:
        return Change("cancel", "requeue" if facts.active else None)
    return Change({"succeeded": "succeed", "failed": "fail", "cancelled": "cancel"}[outcome], "succeed")


def expire(facts: Facts, max_losses: int) -> Change:
    """An expired lease ends the attempt. The run is queued again, unless it lost too many attempts or is being
    cancelled."""
    if facts.tracing:
        return Change("expire", "requeue" if facts.losses < max_losses and not facts.cancel_requested else "succeed")
    if facts.cancel_requested:
        return Change("expire", "cancel")
    return Change("expire", "requeue" if facts.losses < max_losses else "quarantine")


def overrun(facts: Facts) -> Change:
    """A passed deadline fails an attempt that its worker has not ended. The run is not retried."""
    return Change("fail", "succeed" if facts.tracing else "fail")
