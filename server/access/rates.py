"""Rate limits: a token bucket per caller, in this process's memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable


class Rates:
    """One bucket per caller. A bucket gains `rate_per_s` tokens per second and holds those of `burst_s` seconds."""

    def __init__(self, rate_per_s: float, burst_s: float = 2.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate_per_s, self._most, self._clock = rate_per_s, max(1.0, rate_per_s * burst_s), clock
        self._buckets: dict[Hashable, tuple[float, float]] = {}  # tokens, and the time of that count
        self._lock = threading.Lock()

    def take(self, caller: Hashable) -> float:
        """Take a token and return 0, or return the seconds until there is a token."""
        with self._lock:
            at = self._clock()
            tokens, since = self._buckets.get(caller, (self._most, at))
            tokens = min(self._most, tokens + (at - since) * self._rate_per_s)
            if tokens < 1:
                self._buckets[caller] = (tokens, at)
                return (1 - tokens) / self._rate_per_s
            self._buckets[caller] = (tokens - 1, at)
            return 0.0
