"""Buffer of a trainer's numbered output until the server has it. One thread writes, another sends."""

from __future__ import annotations

import threading
from collections import deque
from itertools import islice

from taskloom.contract.attempts import OUTPUT_LINES, OutputLines

KEPT_LINES = 1000  # waiting for the server; beyond that the oldest are dropped


class Output:
    """The lines of one attempt."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[str] = deque(maxlen=KEPT_LINES)
        self._printed = 0

    def add(self, line: str) -> None:
        with self._changed:
            self._waiting.append(line)
            self._printed += 1

    @property
    def pending(self) -> int:
        """Number of lines that the server does not have yet."""
        with self._changed:
            return len(self._waiting)

    def next(self) -> OutputLines | None:
        """Oldest lines that the server does not have. None: it has all."""
        with self._changed:
            if not self._waiting:
                return None
            first = self._printed - len(self._waiting) + 1
            return OutputLines(first=first, lines=list(islice(self._waiting, OUTPUT_LINES)))

    def acknowledge(self, sent: OutputLines) -> None:
        """Drop lines that the server has."""
        with self._changed:
            last = sent.first + len(sent.lines) - 1
            while self._waiting and self._printed - len(self._waiting) < last:
                self._waiting.popleft()
            self._changed.notify_all()

    def give_up(self) -> None:
        """Drop all lines: they will not be sent."""
        with self._changed:
            self._waiting.clear()
            self._changed.notify_all()

    def wait_until_sent(self, wait_s: float) -> None:
        """Wait until the server has all lines, or the time is over."""
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting, wait_s)
