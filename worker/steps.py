"""Buffer of a trainer's step times until the server has them. One thread writes, another sends."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from itertools import islice
from typing import Any

from taskloom.contract.attempts import STEPS, StepsDone

KEPT_STEPS = 10_000  # waiting for the server; beyond that the oldest are dropped
LARGEST = 1e100  # largest number, without its sign, that a heartbeat may contain


def told(value: Any) -> float | None:
    """The number as a heartbeat may contain it; None if it is too large or not a number, as when a run diverges."""
    return value if isinstance(value, int | float) and abs(value) <= LARGEST else None


class Steps:
    """The steps of one attempt."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # time, loss, accuracy
        self._waiting: deque[tuple[float, float | None, float | None]] = deque(maxlen=KEPT_STEPS)
        self._last = 0

    def add(self, event: Mapping[str, Any]) -> None:
        """Add a `step` event. A step that does not follow the last one starts a new sequence."""
        step, step_s = event.get("step"), told(event.get("step_s"))
        if not isinstance(step, int) or step_s is None or step_s < 0:
            return
        with self._lock:
            if step != self._last + 1:
                self._waiting.clear()
            self._waiting.append((step_s, told(event.get("loss")), told(event.get("accuracy"))))
            self._last = step

    @property
    def pending(self) -> int:
        """Number of steps that the server does not have."""
        with self._lock:
            return len(self._waiting)

    def next(self) -> StepsDone | None:
        """The oldest steps that the server does not have. None: it has all."""
        with self._lock:
            if not self._waiting:
                return None
            some = list(islice(self._waiting, STEPS))
            first = self._last - len(self._waiting) + 1
        times, losses, accuracies = (list(each) for each in zip(*some, strict=True))
        return StepsDone(
            first=first, step_s=times, loss=losses, accuracy=None if None in accuracies else accuracies
        )

    def acknowledge(self, sent: StepsDone) -> None:
        """Drop steps that the server has."""
        with self._lock:
            last = sent.first + len(sent.step_s) - 1
            while self._waiting and self._last - len(self._waiting) < last:
                self._waiting.popleft()
