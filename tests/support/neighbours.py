"""Processes of pytest-xdist that keep out of the way of a test that measures times."""

from __future__ import annotations

import contextlib
import fcntl
import signal
from collections.abc import Iterator
from pathlib import Path


class Neighbours:
    """Locks of the processes' tests. A test holds `room`, alone or with others.

    Each comes in through `door`, where one that wants to be alone stands until the room is empty: others that come and
    go cannot keep it waiting for ever.
    """

    def __init__(self, folder: Path) -> None:
        self.door, self.room = (folder / "door").open("w"), (folder / "room").open("w")
        self.inside = False

    def enter(self, alone: bool) -> None:
        """Wait until the test may run."""
        if self.inside:
            return
        fcntl.flock(self.door, fcntl.LOCK_EX)
        fcntl.flock(self.room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(self.door, fcntl.LOCK_UN)
        self.inside = True

    def leave(self) -> None:
        fcntl.flock(self.room, fcntl.LOCK_UN)
        self.inside = False

    def close(self) -> None:
        self.door.close()
        self.room.close()


@contextlib.contextmanager
def time_limit_paused() -> Iterator[None]:
    """The time limit of a test, which pytest-timeout sets, goes on afterwards with what was left of it."""
    left_s, _ = signal.setitimer(signal.ITIMER_REAL, 0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, left_s)
