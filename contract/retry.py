"""What a request to a server can end with, and the policy of its repetition."""

from __future__ import annotations

import email.utils
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx

# Timeouts, "too early", "too many requests", and a server or proxy that fails or starts. Every other 4xx is final.
RETRIED_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
MOST_RETRY_AFTER_S = 300.0
OURS = "/problems/"  # prefix of the server's own problem types

T = TypeVar("T")


class Unreachable(Exception):
    """The server did not answer conclusively; the same request may succeed later. answer: if there is one. sent:
    false if no connection was made."""

    def __init__(
        self, detail: str, retry_after_s: float | None = None, answer: httpx.Response | None = None, sent: bool = True
    ) -> None:
        super().__init__(detail)
        self.retry_after_s, self.answer, self.sent = retry_after_s, answer, sent


class Refused(Exception):
    """The server refused the request with a problem of its own; a retry would not help."""

    def __init__(self, answer: httpx.Response, problem: dict[str, Any]) -> None:
        status = answer.status_code
        how = "; set TASKLOOM_TOKEN to a key of scope worker, or TASKLOOM_TOKEN_FILE to its file"
        hint = how if status == 401 else ""
        reason = f"{status} {problem.get('title', '')}: {problem.get('detail', '')}".rstrip(": ")
        super().__init__(f"{reason.rstrip('.')}{hint}" if hint else reason)
        self.answer, self.status, self.problem = answer, status, problem
        self.slug = str(problem.get("type", "")).removeprefix(OURS)

    def names(self, pointer: str) -> bool:
        """Whether the problem concerns the field of the body with this JSON pointer."""
        errors = self.problem.get("errors")
        return isinstance(errors, list) and any(isinstance(e, dict) and e.get("pointer") == pointer for e in errors)


class GaveUp(Exception):
    """The caller stopped while it waited to retry. The message is the reason for the retry."""


@dataclass(frozen=True)
class RetryPolicy:
    """Exponential back-off with jitter between half and all of the delay, so that clients do not retry in step."""

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
        at_s = email.utils.parsedate_to_datetime(header).timestamp()
    except (ValueError, TypeError, LookupError, ArithmeticError):  # ArithmeticError: a year that is no machine integer
        return None
    return max(0.0, at_s - (time.time() if now_s is None else now_s))


def call_until_answered(
    call: Callable[[], T],
    pause: Callable[[float], bool],
    on_retry: Callable[[Exception, float], None],
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
            on_retry(error, delay_s)
            if not pause(delay_s):
                raise GaveUp(str(error)) from error
