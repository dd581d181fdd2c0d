"""Jumps of the database's clock. Leases and deadlines are instants of that clock, so that several servers agree on
them. This process's monotonic clock tells whether it jumped or drifts, and then leases are extended. To extend them
twice does no harm, so several servers may do it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

MOST_S = 1.0  # by which the clocks may differ within BASE_S
BASE_S = 60.0  # slower drifts are followed
log = logging.getLogger("taskloom.server")


@dataclass(frozen=True)
class Reading:
    """The database's time, read between two instants of the monotonic clock."""

    at: float
    before_s: float
    after_s: float


class ClockJumped(Exception):
    """The database's clock has jumped. The transaction has to be repeated once leases are extended."""


class Clock:
    """Compares readings of the database's clock with the monotonic one. Threads may share it."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.monotonic = monotonic
        self._lock = threading.Lock()
        self._base: Reading | None = None

    def check(self, reading: Reading) -> None:
        """Raises ClockJumped."""
        if self.jump_s(reading):
            raise ClockJumped

    def jump_s(self, reading: Reading) -> float:
        """Seconds by which the database's clock has jumped forward; 0 within the tolerance."""
        with self._lock:
            base = self._base
            if base is None:
                self._base = reading
                return 0.0
            passed_s = reading.at - base.at
            least_s, most_s = reading.before_s - base.after_s, reading.after_s - base.before_s
            jump_s = passed_s - min(max(passed_s, least_s), most_s)
            if abs(jump_s) > MOST_S:
                return jump_s
            if most_s > BASE_S:
                self._base = reading
            return 0.0

    def follow(self, reading: Reading) -> None:
        """From now on, compare with this reading."""
        with self._lock:
            self._base = reading
