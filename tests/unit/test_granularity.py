from __future__ import annotations

import pytest

from gpt2core.spec.errors import ConfigError
from gpt2core.taskbench.granularity import (
    COMPARED,
    MetgConfig,
    Point,
    Sweep,
    metg_s,
    peak_iterations_per_s,
    result,
)

OVERHEAD_S, ITERATION_S = 400e-9, 4e-9


def points(overhead_s: float = OVERHEAD_S, threads: int = 2, largest: int = 1 << 14) -> tuple[Point, ...]:
    """Points of a runtime in which each task costs a thread overhead_s beside its work."""
    grains = [largest >> i for i in range(largest.bit_length())]
    return tuple(Point(g, 1000, 1000 / threads * (overhead_s + g * ITERATION_S), threads) for g in grains)


def test_metg_of_a_constant_overhead_is_twice_the_overhead() -> None:
    """At 50 % efficiency the work of a task takes as long as its overhead. The value lies between grains 64 and 128."""
    found = metg_s(points(), 2 / ITERATION_S)
    assert found == pytest.approx(2 * OVERHEAD_S)


def test_metg_at_a_measured_point_is_that_point() -> None:
    mine = points(overhead_s=128 * ITERATION_S)
    assert metg_s(mine, 2 / ITERATION_S) == pytest.approx(2 * 128 * ITERATION_S)


def test_metg_is_the_smallest_granularity_even_if_a_larger_one_was_disturbed() -> None:
    disturbed = [Point(p.grain, p.tasks, p.elapsed_s * (9 if p.grain == 1024 else 1), 2) for p in points()]
    assert metg_s(disturbed, 2 / ITERATION_S) == pytest.approx(2 * OVERHEAD_S, rel=0.01)


def test_no_metg_where_half_of_the_peak_is_never_or_always_reached() -> None:
    assert metg_s(points(), 100 / ITERATION_S) is None
    assert metg_s(points()[:3], 2 / ITERATION_S) is None


def test_granularity_is_elapsed_x_threads_per_task() -> None:
    assert Point(1, 100, 0.5, 4).task_s == pytest.approx(0.02)


def test_the_peak_is_the_best_rate_at_large_grains() -> None:
    fast_but_small = (*points(), Point(1, 10**9, 1e-3, 2))
    assert peak_iterations_per_s([points(), fast_but_small]) == pytest.approx(2 / ITERATION_S, rel=0.01)


def test_the_result_has_a_row_for_each_pattern_and_scheduler_with_its_spread() -> None:
    config = MetgConfig(pattern=("fft", "tree"), threads=2, repetitions=3)
    sweeps = [
        Sweep(pattern, scheduler, i, points(OVERHEAD_S * (1 + i)))
        for i in range(3) for pattern in config.pattern for scheduler in COMPARED
    ]  # fmt: skip
    found = result(config, sweeps, {})
    assert [(row["pattern"], row["scheduler"]) for row in found["metg"]] == [
        ("fft", "task"), ("fft", "fork-join"), ("tree", "task"), ("tree", "fork-join")
    ]  # fmt: skip
    row = found["metg"][0]
    assert row["metg_s"] == pytest.approx(4 * OVERHEAD_S, rel=0.02)
    assert row["metg_min_s"] == pytest.approx(2 * OVERHEAD_S, rel=0.02)
    assert row["metg_max_s"] == pytest.approx(6 * OVERHEAD_S, rel=0.02)
    assert len(found["sweeps"]) == 12
    assert (row["reached"], row["repetitions"]) == (3, 3)
    assert found["warnings"] == []


def test_it_is_shown_in_how_many_sweeps_half_of_the_peak_was_crossed_and_beside_what_load() -> None:
    config = MetgConfig(scheduler=("task",), threads=2, repetitions=3)
    reached = [Sweep("stencil_1d", "task", i, points()[: 3 if i else None]) for i in range(3)]
    found = result(config, reached, {}, busy_cores=1.26)
    assert (found["metg"][0]["reached"], found["metg"][0]["repetitions"]) == (1, 3)
    assert found["warnings"] == ["other processes kept 1.3 cores busy meanwhile, so the figures are too high"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("pattern", ["star"]),
        ("pattern", []),
        ("pattern", ["fft", "fft"]),
        ("scheduler", ["serial"]),
        ("kernel", "io"),
        ("width", 0),
        ("width", 100_000),
        ("threads", 0),
        ("threads", True),
        ("repetitions", 0),
        ("max_grain", 0),
        ("point_s", 0),
        ("point_s", float("nan")),
        ("cores", "x"),
        ("colour", "red"),
    ],
)
def test_a_setting_that_is_not_accepted_is_named(field: str, value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        MetgConfig.from_dict({field: value})
    assert caught.value.field == field


def test_settings_survive_json() -> None:
    config = MetgConfig(pattern=("fft", "dom"), threads=2, cores=(0, 3), kernel="memory")
    assert MetgConfig.from_dict(config.to_dict()) == config
    assert MetgConfig(max_grain=8).grains() == [8, 4, 2, 1]
