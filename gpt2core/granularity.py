"""Minimum effective task granularity: what is asked for, what was measured, and METG from it. Standard library only."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpt2core.errors import ConfigError
from gpt2core.patterns import PATTERNS
from gpt2core.result import median

SCHEMA = "taskloom.metg/1"
KERNELS = ("compute", "memory")
SCHEDULERS = ("task", "fork-join")
EFFICIENCY = 0.5
GIVE_UP = 0.2  # a sweep ends below this share of its first rate: METG(50 %) is passed for certain
WORK = {"compute": 128, "memory": 1024}  # flop, bytes read and written, of one kernel iteration
UNIT = {"compute": "flop/s", "memory": "B/s"}
MAX_WIDTH, MAX_GRAIN = 256, 1 << 24


@dataclass(frozen=True)
class MetgConfig:
    """A sweep: patterns x schedulers x repetitions, each over grains from max_grain down by halves."""

    pattern: tuple[str, ...] = ("stencil_1d",)
    scheduler: tuple[str, ...] = SCHEDULERS
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
        _several("scheduler", self.scheduler, SCHEDULERS)
        if self.kernel not in KERNELS:
            raise ConfigError("kernel", self.kernel, " or ".join(KERNELS))
        _whole("width", self.width, MAX_WIDTH)
        _whole("threads", self.threads, 1024)
        _whole("repetitions", self.repetitions, 1000)
        _whole("max_grain", self.max_grain, MAX_GRAIN)
        if not isinstance(self.point_s, int | float) or not 0 < self.point_s <= 60:
            raise ConfigError("point_s", self.point_s, "seconds above 0, at most 60")
        if self.cores is not None and (not self.cores or len(set(self.cores)) < len(self.cores)):
            raise ConfigError("cores", list(self.cores), "core numbers, each once")
        if self.cores is not None and self.threads > len(self.cores) and not self.allow_oversubscription:
            raise ConfigError("threads", self.threads, f"at most the {len(self.cores)} cores given")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> MetgConfig:
        """From JSON values. Raises ConfigError for an unknown or unacceptable one."""
        names = [item.name for item in dataclasses.fields(cls)]
        for name in values:
            if name not in names:
                raise ConfigError(name, values[name], "a setting of: " + ", ".join(names))
        listed = ("pattern", "scheduler", "cores")
        return cls(**{k: tuple(v) if k in listed and isinstance(v, list | tuple) else v for k, v in values.items()})

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

    Between the last point above and the first one below, interpolated: granularity against efficiency, both as
    logarithms. None if no point is below (finer than was measured) or none above.
    Source: Slaughter et al. 2020, section 4.
    """
    by_grain = sorted(points, key=lambda point: point.grain)
    efficiency = [point.iterations_per_s / peak_iterations_per_s for point in by_grain]
    first = next((i for i, value in enumerate(efficiency) if value >= EFFICIENCY), None)
    if first is None or first == 0:
        return None
    below, above = math.log(efficiency[first - 1]), math.log(efficiency[first])
    share = (math.log(EFFICIENCY) - below) / (above - below)
    low, high = math.log(by_grain[first - 1].task_s), math.log(by_grain[first].task_s)
    return math.exp(low + share * (high - low))


@dataclass(frozen=True)
class Sweep:
    """One repetition of one pattern under one scheduler."""

    pattern: str
    scheduler: str
    repetition: int
    points: tuple[Point, ...]

    @property
    def peak_iterations_per_s(self) -> float:
        """The rate at the largest grain, which comes first."""
        return self.points[0].iterations_per_s

    @property
    def metg_s(self) -> float | None:
        return metg_s(self.points, self.peak_iterations_per_s)


def summaries(sweeps: Sequence[Sweep], kernel: str) -> list[dict[str, Any]]:
    """For each pattern and scheduler: METG's median and spread over the repetitions, and the medians at each grain."""
    out = []
    for pattern, scheduler in dict.fromkeys((sweep.pattern, sweep.scheduler) for sweep in sweeps):
        mine = [sweep for sweep in sweeps if (sweep.pattern, sweep.scheduler) == (pattern, scheduler)]
        found = [value for sweep in mine if (value := sweep.metg_s) is not None]
        out.append({
            "pattern": pattern,
            "scheduler": scheduler,
            "metg_s": median(found) if found else None,
            "metg_min_s": min(found, default=None),
            "metg_max_s": max(found, default=None),
            "repetitions": len(mine),
            "peak_per_s": median([sweep.peak_iterations_per_s for sweep in mine]) * WORK[kernel],
            "unit": UNIT[kernel],
            "grains": _grains(mine),
        })  # fmt: skip
    return out


def _grains(sweeps: Sequence[Sweep]) -> list[dict[str, Any]]:
    efficiency: dict[int, list[float]] = {}
    task_s: dict[int, list[float]] = {}
    for sweep in sweeps:
        for point in sweep.points:
            share = point.iterations_per_s / sweep.peak_iterations_per_s
            efficiency.setdefault(point.grain, []).append(share)
            task_s.setdefault(point.grain, []).append(point.task_s)
    return [
        {"grain": grain, "task_s": median(task_s[grain]), "efficiency": median(efficiency[grain])}
        for grain in sorted(task_s, reverse=True)
    ]


def result(config: MetgConfig, sweeps: Sequence[Sweep], environment: Mapping[str, Any]) -> dict[str, Any]:
    """What `taskloom metg --json` prints."""
    return {
        "schema": SCHEMA,
        "config": config.to_dict(),
        "environment": dict(environment),
        "metg": summaries(sweeps, config.kernel),
        "sweeps": [
            {
                "pattern": sweep.pattern,
                "scheduler": sweep.scheduler,
                "repetition": sweep.repetition,
                "metg_s": sweep.metg_s,
                "points": [
                    {"grain": p.grain, "tasks": p.tasks, "elapsed_s": p.elapsed_s, "task_s": p.task_s}
                    for p in sweep.points
                ],
            }
            for sweep in sweeps
        ],
    }
