"""Task Bench's dependence patterns: which points of timestep t - 1 a task (t, point) reads. Standard library only.

The number of timesteps is unlimited and each has `width` points: the ramps at the begin and end of Task Bench's dom and
tree are left out. Source: Slaughter et al. 2020, "Task Bench: A Parameterized Benchmark for Evaluating Parallel Runtime
Performance", table 2 and section 2; radix and period as in its experiments with five dependencies a task.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

RADIX = 5  # of nearest, spread and random_nearest: the number of points that they read
PERIOD = 4  # of spread and random_nearest: number of timesteps after which their dependencies repeat
CONNECTED = 0.25  # of random_nearest: probability of a dependency; a task always depends on its own point
TIMESTEPS = 16  # least number of timesteps in a program

Reach = Callable[[int, int, int], Iterable[int]]  # (width, set of the period, point): may be outside 0..width-1


def _trivial(_width: int, _turn: int, _point: int) -> Iterable[int]:
    return ()


def _no_comm(_width: int, _turn: int, point: int) -> Iterable[int]:
    return (point,)


def _stencil_1d(_width: int, _turn: int, point: int) -> Iterable[int]:
    return range(point - 1, point + 2)


def _dom(_width: int, _turn: int, point: int) -> Iterable[int]:
    return (point - 1, point)


def _tree(_width: int, _turn: int, point: int) -> Iterable[int]:
    return (point // 2,)


def _fft(_width: int, turn: int, point: int) -> Iterable[int]:
    return (point - (1 << turn), point, point + (1 << turn))


def _all_to_all(width: int, _turn: int, _point: int) -> Iterable[int]:
    return range(width)


def _nearest(_width: int, _turn: int, point: int) -> Iterable[int]:
    return range(point - RADIX // 2, point + (RADIX + 1) // 2)


def _spread(width: int, turn: int, point: int) -> Iterable[int]:
    return ((point + i * width // RADIX + (turn if i else 0)) % width for i in range(RADIX))


def _random_nearest(width: int, turn: int, point: int) -> Iterable[int]:
    return (
        other
        for other in _nearest(width, turn, point)
        if other == point or random.Random(f"{turn} {other} {point}").random() < CONNECTED
    )


REACH: dict[str, Reach] = {
    "trivial": _trivial,
    "no_comm": _no_comm,
    "stencil_1d": _stencil_1d,
    "dom": _dom,
    "tree": _tree,
    "fft": _fft,
    "all_to_all": _all_to_all,
    "nearest": _nearest,
    "spread": _spread,
    "random_nearest": _random_nearest,
}
PATTERNS = tuple(REACH)


def period(pattern: str, width: int) -> int:
    """Number of timesteps after which a pattern's dependencies repeat."""
    if pattern == "fft":
        return max(1, (width - 1).bit_length())
    return PERIOD if pattern in ("spread", "random_nearest") else 1


def dependencies(pattern: str, width: int, timestep: int, point: int) -> tuple[int, ...]:
    """Points of timestep - 1 that task (timestep, point) reads, ascending, without repeats."""
    sets = period(pattern, width)
    turn = (timestep - 1) % sets if pattern == "fft" else timestep % sets
    return tuple(sorted({other for other in REACH[pattern](width, turn, point) if 0 <= other < width}))


def timesteps(pattern: str, width: int) -> int:
    """Timesteps recorded as one program: whole periods, so that replays of it continue the pattern."""
    sets = period(pattern, width)
    return sets * -(-TIMESTEPS // sets)


def inputs(pattern: str, width: int) -> list[list[tuple[int, ...]]]:
    """dependencies of [timestep][point] for one program."""
    return [
        [dependencies(pattern, width, timestep, point) for point in range(width)]
        for timestep in range(timesteps(pattern, width))
    ]
