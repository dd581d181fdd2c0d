"""The next run's trainer, started while a result is delivered: it loads its libraries and waits for its settings.

Each run has its own process. A waiting trainer uses no core, and no trainer waits while another one runs.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpt2core.process.child import Waiting
from gpt2core.process.temporary import TemporaryFolder

RESULT = "result.json"
Command = Callable[[Path], list[str]]  # derived from the result file's path: gpt2core.process.launch.command


@dataclass(frozen=True)
class Trainer:
    """A trainer that waits for its settings. folder: folder of its result; since_s: its start, on the monotonic
    clock."""

    process: Waiting
    folder: TemporaryFolder
    since_s: float

    @property
    def result(self) -> Path:
        """Path of the result that it will write."""
        return self.folder.path / RESULT

    def withdraw(self) -> None:
        """End the trainer, which has not received settings."""
        self.process.withdraw()
        self.folder.close()


class Standby:
    """Starts trainers on a worker's cores, and holds at most one that waits for the next run."""

    def __init__(self, command: Command, cores: Sequence[int]) -> None:
        self._command, self._cores = command, cores
        self.ready: Trainer | None = None

    def prepare(self) -> None:
        """Start a trainer for the next `take`. Must only be called while no trainer runs."""
        if self.ready is None:
            with contextlib.suppress(OSError):  # `take` tries again and reports the error
                self.ready = self._start(self._command)

    def take(self, command: Command | None = None) -> Trainer:
        """Return the waiting trainer if it is alive, otherwise start one. command: that of another build's trainer.

        Raises OSError.
        """
        if command is None and self.ready is not None and self.ready.process.lives():
            taken, self.ready = self.ready, None
            return taken
        self.dismiss()
        return self._start(command or self._command)

    def dismiss(self) -> None:
        """End the waiting trainer, if there is one."""
        if self.ready is not None:
            self.ready.withdraw()
            self.ready = None

    def _start(self, command: Command) -> Trainer:
        folder = TemporaryFolder()  # not in the spool, whose disk may be full
        try:
            since_s = time.monotonic()
            return Trainer(Waiting(command(folder.path / RESULT), self._cores), folder, since_s)
        except BaseException:
            folder.close()
            raise
