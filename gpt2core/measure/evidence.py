"""Validity of samples: Linux's counts for the team and the machine during each timed step, and the rule that flags a
step. Flagged steps stay in the result; its reader decides about them.

There are two sources. Each thread of the team reads its own usage when it reaches a step (measure.usage). The thread
that watches the run reads the kernel's counts of the whole machine a few times a second; a counter is assumed to grow
evenly between two such readings.
"""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpt2core.compile.clock import read_ticks
from gpt2core.measure import energy, usage
from gpt2core.node import host

READ_EVERY_S = 0.25
SHARE = 0.01  # minimum disturbed share of a step's time, or of its cores' time
FREQUENCY_SHARE = 0.95  # a lower share of the run's median frequency flags a step
FOREIGN_SHARE = 0.02  # minimum share of the cores' time over all timed steps; the kernel counts ticks of milliseconds

RULE = {
    "run_delay": f"a thread was ready but not running for more than {SHARE:.0%} of the step",
    "involuntary_switches": "a thread was preempted (used only if the run delay is unknown)",
    "migrations": "a thread moved to another core",
    "major_faults": "a thread waited for a page from a disk",
    "steal": f"the host took more than {SHARE:.0%} of the cores' time",
    "throttled": "the cgroup's quota stopped its tasks",
    "frequency": f"a core ran below {FREQUENCY_SHARE:.0%} of the run's median frequency",
}
FOREIGN_S = 0.05  # minimum foreign time
FOREIGN_RULE = f"the run is marked if other processes used more than {FOREIGN_SHARE:.0%} of its cores' timed steps"

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Reading:
    """The machine at one moment. Sums since the machine or the process started; None if unknown."""

    ticks: int
    busy_s: float | None  # of the run's cores, all processes
    steal_s: float | None
    own_s: float  # of this process
    throttled_s: float | None
    run_queue: int | None  # of the whole machine, this reading's thread included
    frequency_hz: float | None  # the lowest of the run's cores'
    package_j: float | None = None  # of all packages, all processes
    memory_j: float | None = None


def read_machine(cores: Sequence[int], meter: energy.Meter) -> Reading:
    """Read it now, for these cores."""
    busy_s, steal_s = host.core_times_s(cores)
    own_s = time.process_time()
    return Reading(
        int(read_ticks()), busy_s, steal_s, own_s, host.cgroup_throttled_s(), host.runnable(), host.frequency_hz(cores),
        meter.read_j(energy.PACKAGE), meter.read_j(energy.MEMORY),
    )  # fmt: skip


@dataclass
class Watcher:
    """Readings of the machine while the timed steps run."""

    cores: tuple[int, ...]
    readings: list[Reading] = field(default_factory=list)
    next_s: float = 0.0
    meter: energy.Meter = field(default_factory=energy.Meter)

    def read(self) -> None:
        self.readings.append(read_machine(self.cores, self.meter))
        self.next_s = time.monotonic() + READ_EVERY_S

    def read_if_due(self) -> None:
        if time.monotonic() >= self.next_s:
            self.read()

    def grown(self, name: str, bounds: Ints) -> Floats | None:
        """Growth of a sum in each span between consecutive bounds (in ticks), or None if it is unknown."""
        values = [getattr(reading, name) for reading in self.readings]
        if None in values:
            return None
        at = np.array([reading.ticks for reading in self.readings], np.float64)
        return np.diff(np.interp(bounds.astype(np.float64), at, np.array(values, np.float64)))

    def grown_in(self, name: str, stages: Sequence[Ints]) -> float | None:
        """Growth of a sum in some stages together, by their bounds, or None if it is unknown."""
        grown = [found for bounds in stages if (found := self.grown(name, bounds[[0, -1]])) is not None]
        return math.fsum(float(each[0]) for each in grown) if len(grown) == len(stages) else None

    def around(self, name: str, bounds: Ints) -> list[list[float]] | None:
        """The values read in each span, with the previous and the next one; None if they are unknown."""
        values = [getattr(reading, name) for reading in self.readings]
        if None in values:
            return None
        at = np.array([reading.ticks for reading in self.readings])
        first = np.maximum(np.searchsorted(at, bounds[:-1], "right") - 1, 0)
        last = np.searchsorted(at, bounds[1:], "left") + 1
        return [values[a:b] for a, b in zip(first, last, strict=True)]


def run_delay_ticks(readings: Ints, bounds: Ints, ticks_per_ns: float) -> Floats:
    """The run delay of one thread in each span between consecutive bounds, from its readings (n, LINE), in ticks.

    A thread that is delayed also reads late, perhaps during a later step. So a delay is taken for the time directly
    before the reading that first shows it, but for no longer than since the reading before. A step's delay is at most
    its duration.
    """
    read = readings[readings[:, usage.READ] != 0]
    at, delay = read[:, usage.READ].astype(np.float64), read[:, usage.RUN_DELAY_NS] * ticks_per_ns
    grown = np.clip(np.diff(delay), 0, np.diff(at))
    since = np.column_stack([at[1:] - grown, at[1:]]).ravel()
    total = np.cumsum(np.column_stack([np.zeros_like(grown), grown]).ravel())
    if not len(since):
        return np.zeros(len(bounds) - 1)
    return np.diff(np.interp(bounds.astype(np.float64), since, total))


def usage_of(readings: Ints, bounds: Ints, seconds_per_tick: float) -> dict[str, list[Any] | None]:
    """Columns of the timed steps from the threads' readings (P, steps + 1, LINE); None for what is not known.

    A thread without work in a step has no reading there: the last one is repeated.
    """
    filled = readings.copy()
    for row in range(1, filled.shape[1]):
        missing = filled[:, row, usage.READ] == 0
        filled[missing, row] = filled[missing, row - 1]
    grown = np.diff(filled, axis=1)
    columns: dict[str, list[Any] | None] = {}
    for name, column in (
        ("voluntary_switches", usage.VOLUNTARY),
        ("involuntary_switches", usage.INVOLUNTARY),
        ("minor_faults", usage.MINOR),
        ("major_faults", usage.MAJOR),
    ):
        known = (filled[:, :, column] != usage.UNKNOWN).all()
        columns[name] = [int(v) for v in grown[:, :, column].sum(axis=0)] if known else None
    columns["migrations"] = [int(v) for v in (grown[:, :, usage.CORE] != 0).sum(axis=0)]
    known = (filled[:, :, usage.RUN_DELAY_NS] != usage.UNKNOWN).all()
    delays = [run_delay_ticks(thread, bounds, 1e-9 / seconds_per_tick) for thread in readings]
    columns["run_delay_s"] = [float(v) * seconds_per_tick for v in np.max(delays, axis=0)] if known else None
    return columns


def collect(
    watcher: Watcher, stages: Sequence[tuple[Ints, Ints]], warmup: int, seconds_per_tick: float
) -> dict[str, Any]:
    """Evidence of the timed steps, stage after stage. A stage: the threads' readings and its bounds, (steps + 1,)
    ticks. The result's columns have null for `warmup` steps.
    """
    parts = [columns_of(watcher, readings, bounds, seconds_per_tick) for readings, bounds in stages]
    columns: dict[str, list[Any] | None] = {}
    for name in parts[0]:
        values = [part[name] for part in parts]
        columns[name] = None if None in values else [value for each in values for value in each or ()]
    return {
        "steps": {name: None if v is None else [None] * warmup + v for name, v in columns.items()},
        "unavailable": {name: WHY_NOT[name] for name, values in columns.items() if values is None},
        "foreign": foreign(watcher, [bounds for _, bounds in stages]),
        "readings": len(watcher.readings),
        "rule": {**RULE, "foreign": FOREIGN_RULE},
    }


def columns_of(
    watcher: Watcher, readings: Ints, bounds: Ints, seconds_per_tick: float
) -> dict[str, list[Any] | None]:
    """Columns of a stage's steps; None for what is not known.

    A step lost at most its own time on each core: the kernel counts steal in coarse ticks, and throttling on all cores.
    """
    columns = usage_of(readings, bounds, seconds_per_tick)
    most_s = np.diff(bounds) * seconds_per_tick * len(watcher.cores)
    for name in ("steal_s", "throttled_s"):
        grown = watcher.grown(name, bounds)
        columns[name] = None if grown is None else [float(v) for v in np.minimum(grown, most_s)]
    for name, choose in (("run_queue", max), ("frequency_hz", min)):
        around = watcher.around(name, bounds)
        columns[name] = None if around is None else [choose(values) for values in around]
    return columns


def foreign(watcher: Watcher, stages: Sequence[Ints]) -> dict[str, Any] | None:
    """CPU time that other processes used on the run's cores in some stages, by their bounds; None if it is unknown."""
    busy_s, own_s = watcher.grown_in("busy_s", stages), watcher.grown_in("own_s", stages)
    if busy_s is None or own_s is None:
        return None
    return {"cores": list(watcher.cores), "busy_s": busy_s, "own_s": own_s, "foreign_s": max(0.0, busy_s - own_s)}


def energy_used(watcher: Watcher, stages: Sequence[Ints]) -> dict[str, Any]:
    """Energy of some stages in joules, of the whole packages and of their memory; null with the reason."""
    return {
        **{f"{part}_j": watcher.grown_in(f"{part}_j", stages) for part in (energy.PACKAGE, energy.MEMORY)},
        "zones": [zone.name for zone in watcher.meter.zones],
        "unavailable": {f"{part}_j": reason for part, reason in sorted(watcher.meter.unavailable.items())},
    }


def flags(validity: dict[str, Any], step_s: Sequence[float], cores: int) -> list[list[str]]:
    """The rule's reasons for each step; none for a step without evidence (warm-up)."""
    columns = validity["steps"]
    frequencies = sorted(v for v in columns["frequency_hz"] or () if v is not None)
    usual_hz = frequencies[len(frequencies) // 2] if frequencies else 0.0
    out: list[list[str]] = []
    for step, seconds in enumerate(step_s):
        at = {name: values[step] for name, values in columns.items() if values is not None and values[step] is not None}
        found = {
            "run_delay": at.get("run_delay_s", 0.0) > SHARE * seconds,
            "involuntary_switches": "run_delay_s" not in at and at.get("involuntary_switches", 0) > 0,
            "migrations": at.get("migrations", 0) > 0,
            "major_faults": at.get("major_faults", 0) > 0,
            "steal": at.get("steal_s", 0.0) > SHARE * seconds * cores,
            "throttled": at.get("throttled_s", 0.0) > 0,
            "frequency": at.get("frequency_hz", usual_hz) < FREQUENCY_SHARE * usual_hz,
        }
        out.append([reason for reason, holds in found.items() if holds])
    return out


def warnings(validity: dict[str, Any], flagged: list[list[str]], timed_s: float) -> list[str]:
    """Warnings about flagged ones of the timed steps and other processes on the run's cores."""
    out = []
    if any(flagged):
        reasons = Counter(reason for step in flagged for reason in step)
        text = ", ".join(f"{reason} {count}" for reason, count in reasons.most_common())
        out.append(f"{sum(map(bool, flagged))} of {len(flagged)} timed steps are flagged ({text})")
    found = validity["foreign"]
    if found is not None and found["foreign_s"] > max(FOREIGN_S, FOREIGN_SHARE * timed_s * len(found["cores"])):
        share = found["foreign_s"] / (timed_s * len(found["cores"]))
        out.append(f"foreign load: other processes used {share:.1%} of the run's cores")
    return out


WHY_NOT = {
    "voluntary_switches": "getrusage(RUSAGE_THREAD) is refused",
    "involuntary_switches": "getrusage(RUSAGE_THREAD) is refused",
    "minor_faults": "getrusage(RUSAGE_THREAD) is refused",
    "major_faults": "getrusage(RUSAGE_THREAD) is refused",
    "run_delay_s": "no /proc/self/task/TID/schedstat: a kernel without CONFIG_SCHED_INFO",
    "steal_s": "/proc/stat does not list these cores",
    "throttled_s": "no cgroup of this process reports its throttled time",
    "run_queue": "no /proc/loadavg",
    "frequency_hz": "no cpufreq/scaling_cur_freq: a virtual machine, or a kernel without a frequency driver",
}


def open_schedstat(desk: Ints) -> int:
    """Open the calling thread's schedstat for `usage.read_usage`; the descriptor, or UNKNOWN where there is none."""
    try:
        descriptor = os.open(Path("/proc/thread-self/schedstat"), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        descriptor = usage.UNKNOWN
    desk[usage.SCHEDSTAT_FD] = descriptor
    return descriptor
