"""Patience with a server that starts or restarts: requests that do not reach it are repeated for a while."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from gpt2core.spec.errors import ConfigError
from taskloom.contract.http import is_loopback
from taskloom.contract.retry import Unreachable

STARTING_S, RESTARTING_S, EVERY_S = 30.0, 120.0, 0.5
VARIABLE = "TASKLOOM_START_WAIT_S"
RESTARTING_STATUSES = (502, 503, 504)  # of a proxy whose server restarts


def starting_s() -> float:
    """Seconds for which a server on this machine is waited for. Raises ConfigError."""
    given = os.environ.get(VARIABLE) or STARTING_S
    try:
        found = float(given)
    except ValueError:
        found = -1.0
    if not 0 <= found <= 3600:
        raise ConfigError(VARIABLE, given, "seconds from 0 to 3600")
    return found


class Patience:
    """starting_s: for a server on this machine that has not answered yet. restarting_s: for one that has answered; then
    only questions are repeated, and what has not reached it. check: called before each repetition; may raise."""

    def __init__(
        self,
        starting_s: float = 0.0,
        restarting_s: float = 0.0,
        tell: Callable[[str], None] = lambda _: None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._starting_s, self._restarting_s, self._tell, self._check = starting_s, restarting_s, tell, check
        self._answered = False
        self._silent_since: float | None = None

    def answered(self) -> None:
        """Record that the server has answered a request."""
        if self._silent_since is not None and self._answered:
            self._tell("the server answers again")
        self._answered, self._silent_since = True, None

    def again(self, server: str, failed: Unreachable, is_question: bool) -> bool:
        """Whether to repeat a request that failed so. Waits a moment if so."""
        if failed.answer is not None and failed.answer.status_code not in RESTARTING_STATUSES:
            return False
        if self._answered:
            limit_s = self._restarting_s if is_question or not failed.sent else 0.0
        else:
            limit_s = self._starting_s if not failed.sent and _is_here(server) else 0.0
        now = time.monotonic()
        if self._silent_since is None and limit_s > 0:
            self._tell(
                f"the server {server} does not answer; trying again for {limit_s:g} s"
                if self._answered
                else f"waiting for the server {server} to start (at most {limit_s:g} s)"
            )
            self._silent_since = now
        if limit_s <= 0 or now - (self._silent_since or now) >= limit_s:
            return False
        self._check()
        time.sleep(EVERY_S)
        return True


def _is_here(server: str) -> bool:
    """Whether the address is this machine's loopback."""
    try:
        return is_loopback(urlsplit(server).hostname or "")
    except ValueError:  # no address
        return False
