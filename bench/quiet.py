"""Repetition of measurements that other processes disturbed, and waiting for a quiet machine."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from gpt2core.node import host

T = TypeVar("T")
QUIET, PATIENCE_S, ATTEMPTS = 0.03, 60.0, 5  # maximum share of other processes during a measurement that counts


@dataclass(frozen=True)
class Usage:
    """Seconds of processor time: of the whole machine, and of the children of this process that have ended."""

    at_s: float
    machine_s: float
    children_s: float

    @classmethod
    def now(cls) -> Usage:
        spent, children = host.cpu_times_ticks(), resource.getrusage(resource.RUSAGE_CHILDREN)
        busy = sum(value for name, value in spent.items() if name not in ("idle", "iowait"))
        return cls(time.monotonic(), busy / os.sysconf("SC_CLK_TCK"), children.ru_utime + children.ru_stime)

    def others_since(self, before: Usage) -> float:
        """Share of the machine that other processes and a hypervisor used."""
        others_s = self.machine_s - before.machine_s - (self.children_s - before.children_s)
        return others_s / (self.at_s - before.at_s) / (os.cpu_count() or 1)


def undisturbed(measure: Callable[[], T], what: str, attempts: int = ATTEMPTS) -> tuple[T, float]:
    """The result of `measure`, and the share of other processes meanwhile.

    `measure` waits for its children. It is repeated while others use more than QUIET, up to `attempts` times.
    """
    for attempt in range(1, attempts + 1):
        wait_for_idleness()
        begun = Usage.now()
        found = measure()
        others = Usage.now().others_since(begun)
        if others <= QUIET:
            break
        print(f"{what}: other processes took {others:.0%} of the machine, attempt {attempt} of {attempts}", flush=True)
    return found, others


def wait_for_idleness() -> None:
    """Return once other processes have been idle for a moment, or after PATIENCE_S."""
    warned = False
    end_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < end_s:
        before = Usage.now()
        time.sleep(0.25)
        if Usage.now().others_since(before) <= QUIET:
            return
        if not warned:
            print("waiting until other processes leave the machine alone", flush=True)
            warned = True
