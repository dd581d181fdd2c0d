"""Minimum effective task granularity: settings, measurements, and METG. Standard library only."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpt2core.node import host
from gpt2core.node.load import MOST_BUSY_CORES
from gpt2core.spec import schedulers
from gpt2core.spec.errors import ConfigError
from gpt2core.spec.fields import parse_cores
from gpt2core.spec.result import median
from gpt2core.taskbench.patterns import PATTERNS

SCHEMA = "taskloom.metg/1"
KERNELS = ("compute", "memory")
COMPARED = ("task", "fork-join")  # by default
EFFICIENCY = 0.5
GIVE_UP = 0.2  # a sweep ends below this share of its first rate, where METG(50 %) is certainly passed
WORK = {"compute": 128, "memory": 1024}  # flop, bytes read and written, of one kernel iteration
UNIT = {"compute": "flop/s", "memory": "B/s"}
CACHE_MULTIPLE = 8  # with 4, caches still raised the rate by a sixth
LEAST_STREAM_BYTES = 64 << 20  # of each thread
MAX_WIDTH, MAX_GRAIN = 256, 1 << 24


@dataclass(frozen=True)
class MetgConfig:
    """A sweep: patterns x schedulers x repetitions, each over grains from max_grain down by halves."""

    pattern: tuple[str, ...] = ("stencil_1d",)
    scheduler: tuple[str, ...] = COMPARED
    runtime: str = schedulers.AUTO
    kernel: str = "compute"
    width: int = 16
    threads: int = 1
    cores: tuple[int, ...] | None = None
    allow_oversubscription: bool = False
    repetitions: int = 5
    max_grain: int = 1 << 15
    point_s: float = 0.03

    def __post_init__(self) -> None:
        """Raise ConfigError for a value that is not accepted."""
        _several("pattern", self.pattern, PATTERNS)
        _several("scheduler", self.scheduler, schedulers.parallel())
        schedulers.check_runtime(self.runtime)
        if self.kernel not in KERNELS:
            raise ConfigError("kernel", self.kernel, " or ".join(KERNELS))
        _whole("width", self.width, MAX_WIDTH)
        _whole("threads", self.threads, 1024)
        _whole("repetitions", self.repetitions, 1000)
        _whole("max_grain", self.max_grain, MAX_GRAIN)
        if not isinstance(self.point_s, int | float) or not 0 < self.point_s <= 60:
            raise ConfigError("point_s", self.point_s, "seconds above 0, at most 60")
        if self.cores is not None:
            object.__setattr__(self, "cores", parse_cores(self.cores))
        if self.cores is not None and self.threads > len(self.cores) and not self.allow_oversubscription:
            raise ConfigError("threads", self.threads, f"at most the {len(self.cores)} cores given")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> MetgConfig:
        """From JSON values. Raises ConfigError for an unknown or unacceptable one."""
        names = [item.name for item in dataclasses.fields(cls)]
        for name in values:
            if name not in names:
                raise ConfigError(name, values[name], "a setting of: " + ", ".join(names))
        given: dict[str, Any] = dict(values)
        for name in ("pattern", "scheduler"):
            if isinstance(given.get(name), list):
                given[name] = tuple(given[name])
        return cls(**given)

    def to_dict(self) -> dict[str, Any]:
        return {k: list(v) if isinstance(v, tuple) else v for k, v in dataclasses.asdict(self).items()}

    def grains(self) -> list[int]:
        """Kernel iterations a task, falling by halves down to one."""
        return [self.max_grain >> i for i in range(self.max_grain.bit_length())]


def _several(field: str, values: object, accepted: Sequence[str]) -> None:
    if (
        not isinstance(values, tuple)
        or not values
        or not set(values) <= set(accepted)
        or len(set(values)) < len(values)
    ):
        raise ConfigError(field, values, "one or more, each once, of: " + ", ".join(accepted))


def _whole(field: str, value: object, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise ConfigError(field, value, f"a whole number from 1 to {most}")


def stream_bytes(cores: Sequence[int]) -> int:
    """Size of each thread's buffer of the memory kernel: together CACHE_MULTIPLE times the cores' last-level caches."""
    return max(LEAST_STREAM_BYTES, CACHE_MULTIPLE * host.last_level_cache_bytes(cores) // len(cores))


@dataclass(frozen=True)
class Point:
    """One timed run: `tasks` tasks of `grain` kernel iterations each, in elapsed_s."""

    grain: int
    tasks: int
    elapsed_s: float
    threads: int

    @property
    def task_s(self) -> float:
        """Task Bench's granularity: elapsed x threads / tasks."""
        return self.elapsed_s * self.threads / self.tasks

    @property
    def iterations_per_s(self) -> float:
        return self.tasks * self.grain / self.elapsed_s


def metg_s(points: Sequence[Point], peak_iterations_per_s: float) -> float | None:
    """METG(50 %) in seconds: the smallest time per task at which the rate is still half of the peak's.

    Efficiency is interpolated linearly in 1 / granularity between the last point above half and the first one below it,
    which is exact for a constant overhead per task. None if no point is below half (METG is finer than was measured) or
    none is above. Source: Slaughter et al. 2020, section 4.
    """
    by_grain = sorted(points, key=lambda point: point.grain)
    efficiency = [point.iterations_per_s / peak_iterations_per_s for point in by_grain]
    first = next((i for i, value in enumerate(efficiency) if value >= EFFICIENCY), None)
    if first is None or first == 0:
        return None
    (low, below), (high, above) = ((by_grain[i].task_s, efficiency[i]) for i in (first - 1, first))
    share = (EFFICIENCY - below) / (above - below)
    return 1 / ((1 - share) / low + share / high)


@dataclass(frozen=True)
class Sweep:
    """One repetition of one pattern under one scheduler; points from the largest grain down."""

    pattern: str
    scheduler: str
    repetition: int
    points: tuple[Point, ...]


def peak_iterations_per_s(sweeps: Sequence[Sequence[Point]]) -> float:
    """The kernel's rate on all threads: the best at large grains, from the largest down to an eighth of it."""
    largest = max(point.grain for points in sweeps for point in points)
    return max(point.iterations_per_s for points in sweeps for point in points if 8 * point.grain >= largest)


def summary(mine: Sequence[Sequence[Point]], peak: float) -> dict[str, Any]:
    """METG's median and spread over repetitions of one sweep, and the medians at each grain."""
    found = [value for points in mine if (value := metg_s(points, peak)) is not None]
    by_grain: dict[int, list[Point]] = {}
    for point in (point for points in mine for point in points):
        by_grain.setdefault(point.grain, []).append(point)
    return {
        "metg_s": median(found) if found else None,
        "metg_min_s": min(found, default=None),
        "metg_max_s": max(found, default=None),
        "reached": len(found),
        "repetitions": len(mine),
        "grains": [
            {
                "grain": grain,
                "task_s": median([point.task_s for point in by_grain[grain]]),
                "efficiency": median([point.iterations_per_s / peak for point in by_grain[grain]]),
            }
            for grain in sorted(by_grain, reverse=True)
        ],
    }


def _warnings(busy_cores: float) -> list[str]:
    if busy_cores <= MOST_BUSY_CORES:
        return []
    return [f"other processes kept {busy_cores:.1f} cores busy meanwhile, so the figures are too high"]


def result(
    config: MetgConfig, sweeps: Sequence[Sweep], environment: Mapping[str, Any], busy_cores: float = 0.0
) -> dict[str, Any]:
    """Result of METG, as `taskloom metg --json` prints it. busy_cores: kept busy by other processes meanwhile."""
    peak = peak_iterations_per_s([sweep.points for sweep in sweeps])
    return {
        "schema": SCHEMA,
        "config": config.to_dict(),
        "environment": dict(environment),
        "peak_per_s": peak * WORK[config.kernel],
        "unit": UNIT[config.kernel],
        "busy_cores": busy_cores,
        "warnings": _warnings(busy_cores),
        "metg": [
            {
                "pattern": pattern,
                "scheduler": scheduler,
                **summary([s.points for s in sweeps if (s.pattern, s.scheduler) == (pattern, scheduler)], peak),
            }
            for pattern in config.pattern
            for scheduler in config.scheduler
        ],
        "sweeps": [
            {
                "pattern": sweep.pattern,
                "scheduler": sweep.scheduler,
                "repetition": sweep.repetition,
                "metg_s": metg_s(sweep.points, peak),
                "points": [{**dataclasses.asdict(point), "task_s": point.task_s} for point in sweep.points],
            }
            for sweep in sweeps
        ],
    }
