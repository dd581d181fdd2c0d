"""Retry policy of the worker."""

from __future__ import annotations

import email.utils
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

# Timeouts, "too early", "too many requests", and a server or proxy that fails or starts. Every other 4xx is final.
RETRIED_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
MOST_RETRY_AFTER_S = 300.0

T = TypeVar("T")


class Unreachable(Exception):
    """The server did not answer conclusively; the same request may succeed later."""

    def __init__(self, detail: str, retry_after_s: float | None = None) -> None:
        super().__init__(detail)
        self.retry_after_s = retry_after_s


class GaveUp(Exception):
    """The worker stopped while it waited to retry. The message is the reason for the retry."""


@dataclass(frozen=True)
class RetryPolicy:
    """Exponential back-off with jitter between half and all of the delay, so that workers do not retry in step."""

    first_s: float = 0.5
    factor: float = 2.0
    most_s: float = 30.0

    def delay_s(self, failures: int, retry_after_s: float | None = None, spread: float | None = None) -> float:
        """Seconds to wait after `failures` failures in a row (1 or more). The server's Retry-After is a lower bound."""
        spread = random.random() if spread is None else spread
        delay_s = min(self.most_s, self.first_s * self.factor ** min(failures - 1, 60)) * (0.5 + spread / 2)
        return max(delay_s, min(retry_after_s or 0.0, MOST_RETRY_AFTER_S))


def parse_retry_after_s(header: str | None, now_s: float | None = None) -> float | None:
    """Seconds from a Retry-After header with a number or a date; None if it is missing or unreadable."""
    if not header:
        return None
    if header.strip().isdecimal():
        return float(header)
    try:
        at = email.utils.parsedate_to_datetime(header)
    except ValueError:
        return None
    return max(0.0, at.timestamp() - (time.time() if now_s is None else now_s))


def call_until_answered(
    call: Callable[[], T],
    pause: Callable[[float], bool],
    told: Callable[[Exception, float], None],
    policy: RetryPolicy = RetryPolicy(),
) -> T:
    """Call until it does not raise Unreachable; return its result. Raises GaveUp when pause(delay_s) returns False."""
    failures = 0
    while True:
        try:
            return call()
        except Unreachable as error:
            failures += 1
            delay_s = policy.delay_s(failures, error.retry_after_s)
            told(error, delay_s)
            if not pause(delay_s):
                raise GaveUp(str(error)) from error
