"""The ranks of a run, and the MPI library that connects them. Only runs of several ranks load it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from gpt2core.ranks import cells
from gpt2core.spec.errors import MachineError
from gpt2core.spec.result import median
from gpt2core.spec.wording import counted
from gpt2core.step.rank import Place, Rank

T = TypeVar("T")
LOOK_S = 0.001  # between two looks for the other ranks
QUESTIONS = 30  # about another rank's clock
PING_BYTES = 1 << 20  # of the longer message
TRIPS, TRIPS_S = 20, 0.1  # at most: round trips of a message, and seconds after which no further one begins
PING, END = 1, 2  # tags
FUNCTIONS = {cells.SEND: "MPI_Isend", cells.RECEIVE: "MPI_Irecv", cells.TEST: "MPI_Testall"}


class World:
    """All ranks of a run. Raises MachineError if they or their nodes are not as many as wanted, or the library allows
    no threads."""

    def __init__(self, ranks: int, nodes: int = 1) -> None:
        self._mpi = mpi = _connect()
        # An error of the library ends all ranks.
        mpi.COMM_WORLD.Set_errhandler(mpi.ERRORS_ARE_FATAL)
        self._world = mpi.COMM_WORLD.Dup()
        self._world.Set_errhandler(mpi.ERRORS_ARE_FATAL)
        self.rank = Rank(self._world.rank, self._world.size)
        self.meet()
        _unlink_shared_memory()
        if self.rank.total != ranks:
            raise MachineError(
                f"the launcher started {ranks} processes, but MPI connects {self.rank.total}: the launcher and the "
                f"library ({self.library}) belong to different installations of MPI"
            )
        if mpi.Query_thread() < mpi.THREAD_SERIALIZED:
            raise MachineError(f"{self.library} does not support MPI_THREAD_SERIALIZED")
        self.host = socket.gethostname()
        mine = self.host, sorted(os.sched_getaffinity(0))
        every = self.gathered(mine)
        hosts = [host for host, _ in every]
        self.nodes = len(set(hosts))
        if self.nodes != nodes:
            raise MachineError(f"the launcher placed the ranks on {counted(self.nodes, 'node')}, not on {nodes}")
        sharing = Rank(every[: self.rank.number].count(mine), every.count(mine))
        self.place = Place(hosts.count(self.host), sharing)

    @property
    def library(self) -> str:
        """Name and version of the library."""
        name, version = self._mpi.get_vendor()
        return f"{name} {'.'.join(map(str, version))}"

    def from_first(self, make: Callable[[], T]) -> T:
        """What `make` returns on rank 0, on all ranks. If it fails, the others sleep until the launcher ends them."""
        made = make() if self.rank.number == 0 else None
        self.meet()
        found: T = self._world.bcast(made)
        return found

    @contextlib.contextmanager
    def agreed(self) -> Iterator[None]:
        """What is done inside succeeds on all ranks. Otherwise the first rank that fails raises its error, and the
        others sleep until the launcher ends them."""
        failed: Exception | None = None
        try:
            yield
        except Exception as error:
            failed = error
        self.meet()
        failures = self._world.allgather(failed is not None)
        if failed is not None and not any(failures[: self.rank.number]):
            raise failed
        if any(failures):
            self.meet()

    def first_before(self, work: Callable[[], Any]) -> None:
        """Do some work on rank 0, then on the others; all have done it when this returns."""
        if self.rank.number == 0:
            work()
        self.meet()
        if self.rank.number > 0:
            work()
        self.meet()

    def meet(self) -> None:
        """Wait for all ranks, asleep: the library's own wait would take a core from a rank that compiles."""
        request = self._world.Ibarrier()
        while not request.Test():
            time.sleep(LOOK_S)

    def gathered(self, value: T) -> list[T]:
        """The value of each rank, on all ranks."""
        self.meet()
        return list(self._world.allgather(value))

    def at_first(self, value: T) -> list[T]:
        """The value of each rank, on rank 0; nothing on the others."""
        self.meet()
        return list(self._world.gather(value) or [])

    def lead_ns(self) -> int:
        """What this rank's CLOCK_MONOTONIC is ahead of rank 0's; 0 if it is less than the error, as on one machine.

        Of some questions the one that is answered first counts: the answer was read halfway, with an error of half the
        time (Cristian 1989).
        """
        self.meet()
        if self.rank.number == 0:
            for peer in self.rank.others:
                for _ in range(QUESTIONS):
                    self._world.recv(source=peer)
                    self._world.send(time.monotonic_ns(), dest=peer)
            return 0
        answers = []
        for _ in range(QUESTIONS):
            asked_ns = time.monotonic_ns()
            self._world.send(None, dest=0)
            theirs_ns = self._world.recv(source=0)
            took_ns = time.monotonic_ns() - asked_ns
            answers.append((took_ns, asked_ns + took_ns // 2 - theirs_ns))
        took_ns, ahead_ns = min(answers)
        return ahead_ns if 2 * abs(ahead_ns) > took_ns else 0

    def link(self) -> tuple[float, float] | None:
        """Seconds of a message of one byte between rank 0 and this one, and bytes a second of one of PING_BYTES; None
        on rank 0. The ranks measure one after the other, each for a bounded time.
        """
        found = None
        for peer in range(1, self.rank.total):
            self.meet()
            if self.rank.number == peer:
                found = self._message_s(1), PING_BYTES / self._message_s(PING_BYTES)
                self._world.Send(bytearray(), dest=0, tag=END)
            elif self.rank.number == 0:
                self._answer(peer)
        self.meet()
        return found

    def _message_s(self, size: int) -> float:
        """Half the median time of some round trips to rank 0, after one that connects the two."""
        message, halves_s, until_s = bytearray(size), list[float](), time.monotonic() + TRIPS_S
        while len(halves_s) < 2 or (len(halves_s) <= TRIPS and time.monotonic() < until_s):
            begin_ns = time.monotonic_ns()
            self._world.Send(message, dest=0, tag=PING)
            self._world.Recv(message, source=0)
            halves_s.append((time.monotonic_ns() - begin_ns) / 2e9)
        return median(halves_s[1:])

    def _answer(self, peer: int) -> None:
        """Send back what the peer sends until it ends."""
        message, status = memoryview(bytearray(PING_BYTES)), self._mpi.Status()
        while True:
            self._world.Recv(message, source=peer, status=status)
            if status.Get_tag() == END:
                return
            self._world.Send(message[: status.Get_count()], dest=peer)

    def arrays(self, messages: list[Any]) -> dict[str, NDArray[np.generic]]:
        """The arrays of gpt2core.ranks.messages."""
        library = ctypes.CDLL(self._mpi.__file__)  # finds the functions of the library with which it is linked
        size, handle = self._mpi._sizeof, self._mpi._handleof
        self._statuses = np.zeros(max(len(messages), 1) * size(self._mpi.Status), np.uint8)
        mpi = np.zeros(cells.CELLS, np.int64)
        for cell, name in FUNCTIONS.items():
            mpi[cell] = ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
        for cell, known in ((cells.COMMUNICATOR, self._world), (cells.BYTE, self._mpi.BYTE)):
            mpi[cell] = ctypes.c_int64(handle(known)).value  # MPICH's are negative int
        mpi[cells.REQUEST_BYTES], mpi[cells.STATUSES] = size(self._mpi.Request), self._statuses.ctypes.data
        return {"mpi": mpi, "messages": np.array(messages, np.int64).reshape(-1, 5)}

    def leave(self) -> None:
        """Leave the library once all ranks do."""
        self.meet()
        self._mpi.Finalize()


def _unlink_shared_memory() -> None:
    """Delete the names of MPICH's shared memory, which all ranks have mapped: those of a killed rank would stay."""
    for line in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines():
        if (name := line.rpartition(" ")[2]).startswith("/dev/shm/mpich_"):
            Path(name).unlink(missing_ok=True)


def _connect() -> Any:
    """mpi4py's module, once this process is connected to the others. Raises MachineError without an MPI library."""
    import mpi4py

    mpi4py.rc.initialize = False  # it would hold Python's lock until all ranks are there
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # the latter if no library is found
        raise MachineError(f"mpi4py cannot load an MPI library: {' '.join(str(error).split())}") from error
    init = ctypes.CDLL(MPI.__file__).MPI_Init_thread
    init(None, None, MPI.THREAD_SERIALIZED, ctypes.byref(ctypes.c_int()))  # one thread at a time calls the library
    return MPI
