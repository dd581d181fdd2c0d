"""Checks of a worker's surroundings."""

from __future__ import annotations

from collections.abc import Callable

from gpt2core.spec.preflight import SETTINGS, Check
from gpt2core.spec.settings import writable
from taskloom.contract.http import reached
from taskloom.worker.settings import Settings


def checks(read: Callable[[], Settings]) -> tuple[Check, ...]:
    """The checks before working. A worker with an unusable cache folder moves it (cache.py)."""

    def variables() -> str:
        return f"worker {read().worker_id}"

    def spool() -> str:
        return str(writable("--spool or TASKLOOM_SPOOL", read().spool))

    return (
        *SETTINGS, Check("variables of the worker", variables), Check("spool", spool),
        Check("way to the server", lambda: reached(read().server, read().token)),
    )  # fmt: skip
