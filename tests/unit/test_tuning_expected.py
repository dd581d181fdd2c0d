"""The expected time of a setting, from all runs of a tuning's explore."""

import math
import random

import pytest

from taskloom.analysis.tuning.expected import FITTED, Seen, expected

EFFECTS = ((0.0, 0.2, 0.4), (0.0, 0.3), (0.1, 0.0, 0.25))  # of each value of three settings, on the logarithm
POINTS = [(a, b, c) for a in range(3) for b in range(2) for c in range(3)]
DEFAULT = 0.3


def true(point: int) -> float:
    return sum(effects[at] for effects, at in zip(EFFECTS, POINTS[point], strict=True))


def explored(seed: int, run: float, block: float, batch: int = 6, rounds: int = 1) -> list[Seen]:
    """All points in blocks of `batch` beside the default, with normal scatter of runs and of blocks."""
    chance = random.Random(seed)
    order = [point for _ in range(rounds) for point in chance.sample(range(len(POINTS)), len(POINTS))]
    found = []
    for number in range(0, len(order), batch):
        level = chance.gauss(0, block)
        found.append(Seen(number, None, DEFAULT + level + chance.gauss(0, run)))
        found += [
            Seen(number, each, true(each) + level + chance.gauss(0, run)) for each in order[number : number + batch]
        ]
    return found


def smallest(values: dict[int, float]) -> int:
    return min(values, key=values.__getitem__)


def over_default(runs: list[Seen]) -> dict[int, float]:
    """Each single run over that of the default beside it, which the choice followed before."""
    control = {run.block: run.log_s for run in runs if run.point is None}
    return {run.point: run.log_s - control[run.block] for run in runs if run.point is not None}


def test_without_scatter_it_is_what_was_measured():
    values = expected(POINTS, explored(0, 1e-6, 0.1))
    assert set(values) == set(range(len(POINTS)))
    assert values == pytest.approx({point: true(point) - DEFAULT for point in values}, abs=1e-3)


def test_one_lucky_run_is_not_chosen_where_equal_runs_scatter():
    """Regret of the choice over 60 explorations: half of that of the best single run, or less."""
    regrets = {"expected": 0.0, "single": 0.0}
    for seed in range(60):
        runs = explored(seed, 0.15, 0.05)
        regrets["expected"] += true(smallest(expected(POINTS, runs)))
        regrets["single"] += true(smallest(over_default(runs)))
    assert regrets["expected"] < 0.5 * regrets["single"]
    assert regrets["expected"] / 60 < 0.15


def test_a_slow_run_of_the_default_does_not_make_its_block_look_fast():
    runs = explored(1, 0.01, 0.02)
    slow = next(run.block for run in runs if run.point is None)
    runs = [Seen(run.block, run.point, run.log_s + 0.5 * (run.point is None and run.block == slow)) for run in runs]
    best = min(range(len(POINTS)), key=true)
    assert any(run.block == slow and run.point != best for run in runs)
    assert smallest(expected(POINTS, runs)) == best


def test_a_setting_with_a_time_of_its_own_is_found_where_runs_scatter_little():
    special = POINTS.index((2, 1, 2))  # the slowest by its values
    runs = [Seen(run.block, run.point, run.log_s - 1.5 * (run.point == special)) for run in explored(2, 0.01, 0.02)]
    assert smallest(expected(POINTS, runs)) == special


def test_repeated_runs_of_a_point_count_together():
    once, thrice = (
        sum(true(smallest(expected(POINTS, explored(seed, 0.3, 0.05, rounds=rounds)))) for seed in range(40))
        for rounds in (1, 3)
    )
    assert thrice < once


@pytest.mark.parametrize("runs", [[], [Seen(0, None, 0.0)]])
def test_nothing_is_expected_without_runs_of_settings(runs):
    assert expected(POINTS, runs) == {}


def test_equal_times_and_one_run_are_no_error():
    assert expected([(0,)], [Seen(0, 0, 1.0)]) == {0: pytest.approx(1.0)}
    runs = [Seen(0, None, 0.0), *(Seen(0, point, 0.0) for point in (4, 2, 7))]
    assert expected(POINTS, runs) == {4: 0.0, 2: 0.0, 7: 0.0}


def test_more_runs_than_those_that_give_the_variances():
    runs = explored(3, 0.1, 0.05, rounds=FITTED // len(POINTS) + 4)
    assert len(runs) > FITTED
    values = expected(POINTS, runs)
    assert all(math.isclose(values[point], true(point) - DEFAULT, abs_tol=0.1) for point in values)
