"""The team: threads, each pinned to its core, each inside one compiled call for the whole run."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from gpt2core.compile.jit import Function
from gpt2core.node.pinning import pin_this_thread
from gpt2core.schedulers.scheduler import Job, Prepared, Stage
from gpt2core.spec.errors import Stalled
from gpt2core.step.control import FINISHED, FIRST, LAST

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Team:
    """P threads on given cores. Threads live for one `run`; memory that they touched first stays near their cores."""

    def __init__(self, cores: Sequence[int]) -> None:
        self.cores = tuple(cores)
        self.observed: list[tuple[int, ...]] = [()] * len(cores)

    def run(
        self,
        function: Callable[..., None],
        arguments: Sequence[Any],
        watch: Callable[[], None] = lambda: None,
        period_s: float = 0.05,
        inside: Callable[[int], AbstractContextManager[None]] = lambda _: nullcontext(),
    ) -> None:
        """Call function(thread, *arguments), compiled or not, on every thread, each in its context `inside(thread)`;
        meanwhile call `watch` every period_s here.

        The first exception of a thread or of `watch` is raised here once every thread has returned. A failing `watch`
        must therefore stop the threads; until then it is called again. Stalled is raised at once.
        """
        ready: Callable[..., Callable[[], Any]] = partial(partial, function)
        if isinstance(function, Function):
            ready = function.ready
        calls = [ready(thread, *arguments) for thread in range(len(self.cores))]  # compiled before the clock runs
        failures: list[BaseException] = []
        together = threading.Barrier(len(self.cores))

        def member(thread: int) -> None:
            try:
                self.observed[thread] = self.place(thread)
                with inside(thread):
                    together.wait()
                    calls[thread]()
            except BaseException as failure:
                failures.append(failure)
                together.abort()

        for thread in self.start(member):
            while thread.is_alive():
                thread.join(period_s)
                try:
                    watch()
                except Stalled:
                    raise  # its threads may never return; they end with the process
                except BaseException as failure:
                    failures.append(failure)
        if failures:
            raise next((f for f in failures if not isinstance(f, threading.BrokenBarrierError)), failures[0])

    def start(self, member: Callable[[int], None]) -> list[threading.Thread]:
        """Have each thread of the team call member(thread); return the threads to join."""
        threads = [
            threading.Thread(target=member, args=(i,), name=f"team-{i}", daemon=True) for i in range(len(self.cores))
        ]
        for thread in threads:
            thread.start()
        return threads

    def place(self, thread: int) -> tuple[int, ...]:
        """Bind the calling thread to its core; return its affinity, read back. Raises MachineError if it is not in
        effect."""
        return pin_this_thread(self.cores[thread])


class OnTeam(Prepared):
    """A scheduler of ours that is ready to run: a compiled loop, entered by each thread of a team."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.observed = [()] * len(job.cores)

    @abstractmethod
    def loop(self, stage: Stage) -> tuple[Callable[..., None], list[Any]]:
        """The compiled loop of a stage, and its arguments after the common ones (see `run`)."""

    def tasks(self) -> NDArray[np.int64]:
        """The table from which the loop runs tasks: each is complete when it has returned."""
        return self.job.bound.tasks

    def team(self) -> Team:
        """The team that runs the next stage."""
        return Team(self.job.cores)

    def run(self, stage: Stage) -> None:
        """Let a new team run the stage."""
        job, team = self.job, self.team()
        job.control[FINISHED], job.control[LAST], job.control[FIRST] = 0, 0, stage.first
        loop, more = self.loop(stage)
        common = [self.tasks(), job.bound.context, stage.record, job.control, stage.end]
        self.observed = team.observed
        team.run(loop, [*common, *more], stage.watch, inside=stage.inside)
