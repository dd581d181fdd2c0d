"""Parallel efficiency and its factors, split of waiting, and cost of the work.

Sources: the POP centre's multiplicative model (pop-coe.eu, "further information: POP metrics"); TALP's split of waiting
(Lopez, Garcia, Corbalan 2021). Times are seconds; u is a thread's useful time, P threads, T elapsed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Efficiency:
    """parallel = load_balance x communication; communication = serialisation x transfer (null without critical_s)."""

    parallel: float
    load_balance: float
    communication: float
    serialisation: float | None
    transfer: float | None


@dataclass(frozen=True)
class WaitingSplit:
    """Share of P T left after each kind of waiting; the product of the three is the parallel efficiency.

    serial: no task was ready, or only one thread had work; load_balance: waiting for slower threads at a barrier;
    scheduling: everything else that is not useful.
    """

    serial: float
    load_balance: float
    scheduling: float
    useful_s: float
    serial_s: float
    load_balance_s: float
    scheduling_s: float

    @property
    def times_s(self) -> tuple[float, float, float, float]:
        """The parts of the threads' time: in tasks, without a ready task, at barriers, in scheduling."""
        return self.useful_s, self.serial_s, self.load_balance_s, self.scheduling_s


@dataclass(frozen=True)
class Scalability:
    """Useful time of the reference / useful time here, over equal work: 1 means that sharing the machine costs nothing.

    With counters it is the product of three: instructions, instructions per cycle, frequency; else they are null.
    """

    computation: float
    instructions: float | None
    ipc: float | None
    frequency: float | None


@dataclass(frozen=True)
class Counted:
    """Counters over all threads' useful time."""

    instructions: float
    cycles: float


def efficiency(useful_s: Sequence[float], elapsed_s: float, critical_s: float | None = None) -> Efficiency:
    """Factors from each thread's useful time. critical_s: useful time on the critical path of what was executed.

    Raises ValueError for no threads, no elapsed time, or no useful time.
    """
    threads, total, longest = len(useful_s), math.fsum(useful_s), max(useful_s, default=0.0)
    if elapsed_s <= 0 or longest <= 0:
        raise ValueError(f"no useful time of {threads} threads in {elapsed_s:g} s")
    serialisation = transfer = None
    if critical_s is not None:
        if critical_s <= 0:
            raise ValueError(f"a critical path of {critical_s:g} s")
        serialisation, transfer = longest / critical_s, critical_s / elapsed_s
    return Efficiency(
        parallel=total / (threads * elapsed_s),
        load_balance=total / threads / longest,
        communication=longest / elapsed_s,
        serialisation=serialisation,
        transfer=transfer,
    )


def critical_s(useful_s: Sequence[float], span_s: float) -> float:
    """Lower bound of the executed critical path: the tasks of one thread are a path, and so is the graph's span. It is
    exact only if one of them is the critical path; a replay (forecast) gives more."""
    return max(span_s, max(useful_s))


def waiting_split(
    useful_s: Sequence[float], serial_s: Sequence[float], load_balance_s: Sequence[float], elapsed_s: float
) -> WaitingSplit:
    """TALP's split. Time that is neither useful nor waiting is scheduling, so that all of P T is accounted for. Raises
    ValueError if the parts exceed P T by more than 1 %, the clocks' mutual error."""
    capacity = len(useful_s) * elapsed_s
    useful, serial, balance = math.fsum(useful_s), math.fsum(serial_s), math.fsum(load_balance_s)
    if useful <= 0:
        raise ValueError("no useful time")
    known = useful + serial + balance
    if known > 1.01 * capacity:
        raise ValueError(f"parts of {known:g} s do not fit into {capacity:g} s of {len(useful_s)} threads")
    whole = max(known, capacity)
    return WaitingSplit(
        serial=useful / (useful + serial),
        load_balance=(useful + serial) / known,
        scheduling=known / whole,
        useful_s=useful,
        serial_s=serial,
        load_balance_s=balance,
        scheduling_s=whole - known,
    )


def scalability(
    reference_useful_s: float, useful_s: float, reference: Counted | None = None, here: Counted | None = None
) -> Scalability:
    """Computation scalability, and its factors where both sides have counters. Raises ValueError for no time."""
    if reference_useful_s <= 0 or useful_s <= 0:
        raise ValueError("no useful time")
    computation = reference_useful_s / useful_s
    if reference is None or here is None or min(reference.instructions, reference.cycles, here.instructions,
                                                here.cycles) <= 0:  # fmt: skip
        return Scalability(computation, None, None, None)
    ipc = (here.instructions / here.cycles) / (reference.instructions / reference.cycles)
    frequency = (here.cycles / useful_s) / (reference.cycles / reference_useful_s)
    return Scalability(computation, reference.instructions / here.instructions, ipc, frequency)
