"""Waiting for other threads and processes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

DEADLINE_S = 120.0  # a minute was too short beside ten runnable processes on two cores
T = TypeVar("T")


def until(found: Callable[[], T | None], what: str = "", deadline_s: float = DEADLINE_S) -> T:
    """Return the first true answer of `found`; fail with `what` if there is none in time.

    The longer it waits, the less often it looks: most looks are requests, which take time of what is waited for.
    """
    begin = time.monotonic()
    while True:
        answer = found()
        if answer:
            return answer
        waited_s = time.monotonic() - begin
        assert waited_s < deadline_s, f"waited {deadline_s} s in vain for {what or found}"
        time.sleep(min(0.02 + waited_s / 20, 0.25))
