"""The OpenMP runtime of this process: at most one, with the threads of one team."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from gpt2core.node import openmp
from gpt2core.node.openmp import ENTRY_POINTS, RuntimeFile
from gpt2core.schedulers.openmp.creation import MOST_PRIORITY
from gpt2core.spec.errors import MachineError
from gpt2core.spec.schedulers import AUTO

T = TypeVar("T")
# Removed, since they would contradict the settings below.
CONTRADICTING = (
    "GOMP_CPU_AFFINITY", "KMP_AFFINITY", "KMP_ALL_THREADS", "KMP_DEVICE_THREAD_LIMIT", "KMP_HW_SUBSET", "KMP_LIBRARY",
    "KMP_MAX_THREADS", "OMP_MAX_ACTIVE_LEVELS", "OMP_NESTED", "OMP_TEAMS_THREAD_LIMIT", "OMP_THREAD_LIMIT",
)  # fmt: skip
# The spinning time before a thread sleeps has a large effect. With a core each, threads spin for about a millisecond,
# as ours do; otherwise they sleep at once. A setting in the environment takes precedence.
SPINNING = {"OMP_WAIT_POLICY": "active", "GOMP_SPINCOUNT": "20000", "KMP_BLOCKTIME": "1"}
SLEEPING = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0", "KMP_BLOCKTIME": "0"}


class Leader:
    """The thread that loads a runtime, opens all its parallel regions, and is their first member.

    There is only one, since a runtime may bind a second thread that opens a region to another core. It ends with the
    process.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = SimpleQueue()
        threading.Thread(target=self._run, name="openmp-0", daemon=True).start()

    def call(self, function: Callable[[], T]) -> T:
        """The result of the function, called by this thread; its exception is raised here."""
        result: Future[T] = Future()
        self._calls.put((function, result))
        return result.result()

    def _run(self) -> None:
        while True:
            function, result = self._calls.get()
            try:
                result.set_result(function())
            except BaseException as failure:
                result.set_exception(failure)


@dataclass(frozen=True)
class Runtime:
    """A loaded runtime; `address` (ENTRY_POINTS,) of its functions, `settings` what it was loaded with."""

    file: RuntimeFile
    cores: tuple[int, ...]
    settings: Mapping[str, str]
    leader: Leader
    shared_object: ctypes.CDLL
    address: NDArray[np.int64]


_lock = threading.Lock()
_runtime: Runtime | None = None


def load(wanted: str, cores: Sequence[int]) -> Runtime:
    """The runtime for the setting `runtime`, with a thread to be bound to each core; loaded if it is not yet.

    Raises MachineError if it is not here, lacks an entry point, or if this process has another OpenMP runtime, or this
    one for another team: a runtime reads its settings once.
    """
    global _runtime
    with _lock:
        here = None if _runtime is None else _runtime.file
        file = here if here and wanted == AUTO else openmp.choose(wanted)
        check_alone(here)
        if _runtime is None:
            _runtime = _load(file, tuple(cores))
        elif file.path != _runtime.file.path:
            raise MachineError(f"this process has loaded {_runtime.file.path}; another runtime needs another process")
        if _runtime.cores != tuple(cores):
            raise MachineError(
                f"{_runtime.file.name} binds its threads to the cores {list(_runtime.cores)} in this process; "
                f"{list(cores)} need another process"
            )
        return _runtime


def describe() -> dict[str, Any]:
    """Entries for a result's environment about this process's runtime; none without a runtime."""
    if _runtime is None:
        return {}
    file = _runtime.file
    return {
        "runtime": file.name,
        "version": file.version,
        "path": str(file.path),
        "sha256": file.sha256,
        "settings": dict(_runtime.settings),
    }


def check_alone(ours: RuntimeFile | None) -> None:
    """Raise MachineError if an OpenMP runtime other than ours is loaded into this process."""
    others = [path for path in openmp.loaded() if ours is None or path.resolve() != ours.path]
    if others:
        raise MachineError(
            f"{others[0]} is loaded in this process: two OpenMP runtimes would compete for the cores. "
            "Set MKL_THREADING_LAYER=SEQUENTIAL if it came with MKL"
        )


def settings_for(cores: Sequence[int]) -> dict[str, str]:
    """The environment variables of a runtime: a place for each thread, and how threads wait."""
    waiting = SPINNING if len(set(cores)) == len(cores) else SLEEPING
    return {
        "OMP_PLACES": ",".join(f"{{{core}}}" for core in cores),
        "OMP_PROC_BIND": "close",
        "OMP_DYNAMIC": "false",
        "OMP_NUM_THREADS": str(len(cores)),
        "OMP_MAX_TASK_PRIORITY": str(MOST_PRIORITY),
        **{name: os.environ.get(name, value) for name, value in waiting.items()},
    }


def _load(file: RuntimeFile, cores: tuple[int, ...]) -> Runtime:
    """Load a runtime under the settings for these cores."""
    settings = settings_for(cores)
    for name in CONTRADICTING:
        os.environ.pop(name, None)
    os.environ.update(settings)
    leader = Leader()
    try:
        library = leader.call(lambda: ctypes.CDLL(str(file.path)))
    except OSError as error:
        raise MachineError(f"{file.path} cannot be loaded: {error}") from error
    leader.call(library.omp_get_max_threads)  # LLVM's runtimes give the first place to the first thread that calls them
    address = [ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0 for name in ENTRY_POINTS]
    return Runtime(file, cores, settings, leader, library, np.array(address, np.int64))
