"""The transition table of runs and attempts. All other transitions are rejected. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

from taskloom.contract.attempts import AttemptState
from taskloom.contract.runs import RunState
from taskloom.server.errors import InvalidTransition


@dataclass(frozen=True)
class Machine:
    """A state machine: its states, and the transitions of each verb."""

    subject: str
    states: tuple[str, ...]
    verbs: Mapping[str, Mapping[str, str]]

    def after(self, state: str, verb: str, identity: int) -> str:
        """The state that `verb` leads to. Raises InvalidTransition."""
        if state not in self.verbs[verb]:
            raise InvalidTransition(
                f"{self.subject} {identity} is {state}; it cannot {verb}", current=state, allowed=self.allowed(state)
            )
        return self.verbs[verb][state]

    def allowed(self, state: str) -> list[str]:
        """The states that `state` may change to."""
        return sorted({table[state] for table in self.verbs.values() if state in table} - {state})

    def final(self) -> tuple[str, ...]:
        """States that are neither queued nor active."""
        return tuple(s for s in self.states if s not in OPEN)


def _to(target: str, *sources: str) -> dict[str, str]:
    return dict.fromkeys(sources, target)


ACTIVE = ("leased", "running")
OPEN = ("queued", *ACTIVE)  # of runs that have not ended

RUN = Machine(
    "run",
    get_args(RunState),
    {
        "claim": _to("leased", "queued"),
        "start": _to("running", "leased", "running"),
        # From queued and quarantined: a lost attempt returns before another worker has claimed the run.
        "renew": _to("running", "queued", "quarantined"),
        "succeed": _to("succeeded", *ACTIVE, "queued", "quarantined"),
        "fail": _to("failed", *ACTIVE, "queued", "quarantined"),
        "cancel": _to("cancelled", *ACTIVE, "queued"),
        "requeue": _to("queued", *ACTIVE),
        # The run was timed and will be traced. It has a canonical result, so it can only succeed.
        "trace": _to("queued", *ACTIVE, "queued", "quarantined"),
        "quarantine": _to("quarantined", *ACTIVE),
        "retry": _to("queued", "failed", "cancelled", "quarantined"),
    },
)

ATTEMPT = Machine(
    "attempt",
    get_args(AttemptState),
    {
        "start": _to("running", *ACTIVE),
        "renew": _to("running", "lost"),
        "succeed": _to("succeeded", *ACTIVE, "lost"),
        "fail": _to("failed", *ACTIVE, "lost"),
        "cancel": _to("cancelled", *ACTIVE, "lost"),
        "expire": _to("lost", *ACTIVE),
        # From failed: the server enforced the deadline before the worker's result arrived.
        "supersede": _to("superseded", "lost", "failed"),
    },
)
