"""SIGINT and SIGTERM as an exception, which can be deferred while a process is being started."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator

HEARD = (signal.SIGINT, signal.SIGTERM)


class Stopped(Exception):
    """This process was asked to stop by the user or the system."""


class Stopping:
    """Inside `with`, the first SIGINT or SIGTERM raises Stopped; later ones have no effect. Main thread only."""

    def __init__(self) -> None:
        self._asked = self._raised = False
        self._held = 0

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        before = {number: signal.signal(number, self._hear) for number in HEARD}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextlib.contextmanager
    def held_back(self) -> Iterator[None]:
        """Stopped is raised at the end of this block, not inside."""
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1
        self._raise_if_asked()

    def _hear(self, _number: int, _frame: object) -> None:
        self._asked = True
        self._raise_if_asked()

    def _raise_if_asked(self) -> None:
        if self._asked and not self._raised and not self._held:
            self._raised = True
            raise Stopped
