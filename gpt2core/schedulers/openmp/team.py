"""A team whose threads an OpenMP runtime starts and binds; otherwise like ours."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable

from gpt2core.schedulers.openmp import runtime
from gpt2core.schedulers.openmp.runtime import Runtime
from gpt2core.schedulers.scheduler import Job
from gpt2core.schedulers.team import OnTeam, Team
from gpt2core.spec.errors import MachineError
from gpt2core.spec.schedulers import AUTO

OUTLINED = ctypes.CFUNCTYPE(None, ctypes.c_void_p)  # the function that GOMP_parallel calls on each thread of a region


class OpenMPTeam(Team):
    """The threads of one parallel region."""

    def __init__(self, loaded: Runtime) -> None:
        super().__init__(loaded.cores)
        self.loaded = loaded

    def start(self, member: Callable[[int], None]) -> list[threading.Thread]:
        """Have the runtime's leader open the region; a thread that ends with it."""
        shared_object = self.loaded.shared_object
        body = OUTLINED(lambda _: member(shared_object.omp_get_thread_num()))
        threads, flags = ctypes.c_uint(len(self.cores)), ctypes.c_uint(0)
        until_it_ends = threading.Thread(
            target=lambda: self.loaded.leader.call(lambda: shared_object.GOMP_parallel(body, None, threads, flags)),
            name="openmp",
            daemon=True,
        )
        until_it_ends.start()
        return [until_it_ends]

    def place(self, thread: int) -> tuple[int, ...]:
        """The affinity that the runtime gave this thread. Raises MachineError if it is not the thread's core, or if
        threads are missing."""
        name, core = self.loaded.file.name, self.cores[thread]
        count = self.loaded.shared_object.omp_get_num_threads()
        if count != len(self.cores):
            raise MachineError(f"{name} started {count} threads instead of {len(self.cores)}")
        observed = tuple(sorted(os.sched_getaffinity(0)))  # of the calling thread
        if observed != (core,):
            raise MachineError(f"{name} should bind thread {thread} to core {core}, but it may run on {observed}")
        return observed


class OnOpenMP(OnTeam):
    """A compiled loop, entered by each thread of a parallel region."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.loaded = runtime.load(job.options.get("runtime", AUTO), job.cores)

    def team(self) -> Team:
        return OpenMPTeam(self.loaded)
