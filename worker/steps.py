"""Buffer of a trainer's step times until the server has them. One thread writes, another sends."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from itertools import islice, zip_longest
from typing import Any, NamedTuple

from taskloom.contract.attempts import STEPS, StepsDone

KEPT_STEPS = 10_000  # waiting for the server; beyond that the oldest are dropped
OF_EACH = ("step_s", "loss", "accuracy")
LARGEST = 1e100  # largest number, without its sign, that a heartbeat may contain


def finite(value: Any) -> float | None:
    """The number as a heartbeat may contain it; None if it is too large or not a number, as when a run diverges."""
    return value if isinstance(value, int | float) and abs(value) <= LARGEST else None


class Step(NamedTuple):
    """A step, and the evaluation after it."""

    step_s: float
    loss: float | None
    accuracy: float | None
    evaluation_loss: float | None = None
    evaluation_accuracy: float | None = None


class Steps:
    """The steps of one attempt. A step that an evaluation follows, every `evaluate_every` of them, waits for it."""

    def __init__(self, evaluate_every: int = 0) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[Step] = deque(maxlen=KEPT_STEPS)
        self._last = 0
        self._evaluate_every, self._incomplete = evaluate_every, False

    def add(self, event: Mapping[str, Any]) -> None:
        """Add a `step` event, and the `earlier` steps in it. Steps behind a gap replace all before."""
        step, earlier = event.get("step"), event.get("earlier") or {}
        rows = [*zip_longest(*(earlier.get(name, []) for name in OF_EACH)), [event.get(name) for name in OF_EACH]]
        times = [finite(step_s) for step_s, _, _ in rows]
        if not isinstance(step, int) or any(step_s is None or step_s < 0 for step_s in times):
            return
        with self._lock:
            if step - len(rows) != self._last:
                self._waiting.clear()
            self._waiting.extend(
                Step(step_s or 0.0, finite(loss), finite(accuracy))
                for step_s, (_, loss, accuracy) in zip(times, rows, strict=True)
            )
            self._last = step
            self._incomplete = bool(self._evaluate_every) and step % self._evaluate_every == 0

    def evaluated(self, event: Mapping[str, Any]) -> None:
        """Complete the last step with an `evaluation` event."""
        with self._lock:
            if self._incomplete and event.get("step") == self._last:
                found = (finite(event.get(name)) for name in ("loss", "accuracy"))
                self._waiting[-1] = Step(*self._waiting[-1][:3], *found)
                self._incomplete = False

    @property
    def pending(self) -> int:
        """Number of steps that the server does not have."""
        with self._lock:
            return len(self._waiting)

    def next(self) -> StepsDone | None:
        """The oldest complete steps that the server does not have. None: it has all."""
        with self._lock:
            some = list(islice(self._waiting, min(STEPS, len(self._waiting) - self._incomplete)))
            first = self._last - len(self._waiting) + 1
        if not some:
            return None
        times, losses, accuracies, *evaluations = (list(each) for each in zip(*some, strict=True))
        of_losses, of_accuracies = (each if any(value is not None for value in each) else None for each in evaluations)
        return StepsDone(
            first=first, step_s=times, loss=losses, accuracy=None if None in accuracies else accuracies,
            evaluation_loss=of_losses, evaluation_accuracy=of_accuracies,
        )  # fmt: skip

    def acknowledge(self, sent: StepsDone) -> None:
        """Drop steps that the server has."""
        with self._lock:
            last = sent.first + len(sent.step_s) - 1
            while self._waiting and self._last - len(self._waiting) < last:
                self._waiting.popleft()
