"""The inputs of each pattern agree with Task Bench's reverse dependencies, which name the readers of a point.

Source: Slaughter et al. 2020, Task Bench, table 2 and the reverse dependencies of its reference implementation.
"""

from __future__ import annotations

import random

import pytest

from gpt2core.taskbench.patterns import (
    CONNECTED,
    PATTERNS,
    PERIOD,
    RADIX,
    TIMESTEPS,
    dependencies,
    inputs,
    period,
    timesteps,
)

WIDTHS = (1, 2, 3, 5, 8, 16, 17)


def readers(pattern: str, width: int, turn: int, point: int) -> set[int]:
    """Points of the next timestep that read this one."""
    match pattern:
        case "trivial":
            return set()
        case "no_comm":
            return {point}
        case "stencil_1d":
            return {p for p in range(width) if abs(p - point) <= 1}
        case "dom":
            return {point, min(point + 1, width - 1)}
        case "tree":
            return {child for child in (2 * point, 2 * point + 1) if child < width}
        case "fft":
            return {p for p in range(width) if p == point or abs(p - point) == 2**turn}
        case "all_to_all":
            return set(range(width))
        case "nearest":
            return {p for p in range(width) if -((RADIX - 1) // 2) <= p - point <= RADIX // 2}
        case "spread":
            return {(point - i * width // RADIX - (turn if i else 0)) % width for i in range(RADIX)}
        case "random_nearest":
            near = readers("nearest", width, turn, point)
            return {p for p in near if p == point or random.Random(f"{turn} {point} {p}").random() < CONNECTED}
    raise AssertionError(pattern)


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("width", WIDTHS)
def test_a_task_reads_those_whose_readers_it_is_among(pattern: str, width: int) -> None:
    sets = period(pattern, width)
    for timestep in range(2 * sets):
        turn = (timestep + sets - 1) % sets if pattern == "fft" else timestep % sets
        for point in range(width):
            expected = tuple(p for p in range(width) if point in readers(pattern, width, turn, p))
            found = dependencies(pattern, width, timestep, point)
            if pattern == "spread" and width % RADIX:  # Task Bench rounds down in both directions: not exact inverses
                expected = tuple(
                    sorted({(point + i * width // RADIX + (turn if i else 0)) % width for i in range(RADIX)})
                )
            assert found == expected


@pytest.mark.parametrize("pattern", PATTERNS)
def test_replays_continue_the_pattern(pattern: str) -> None:
    steps = timesteps(pattern, 16)
    assert steps >= TIMESTEPS
    assert inputs(pattern, 16) == [[dependencies(pattern, 16, steps + t, p) for p in range(16)] for t in range(steps)]


def test_periods() -> None:
    assert [period("fft", width) for width in (1, 2, 3, 8, 16, 17)] == [1, 1, 2, 3, 4, 5]
    assert period("spread", 16) == period("random_nearest", 16) == PERIOD
    assert period("stencil_1d", 16) == 1


def test_by_hand() -> None:
    assert [dependencies("fft", 4, t, 1) for t in (1, 2)] == [(0, 1, 2), (1, 3)]
    assert dependencies("spread", 16, 1, 0) == (0, 4, 7, 10, 13)
    assert dependencies("nearest", 16, 0, 0) == (0, 1, 2)
    assert dependencies("tree", 16, 3, 9) == (4,)
    assert dependencies("dom", 16, 3, 0) == (0,)
