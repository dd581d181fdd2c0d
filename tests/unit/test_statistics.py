import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from gpt2core.spec.result import median_interval
from taskloom.analysis import statistics
from taskloom.analysis.estimators import sequential_bounds
from taskloom.analysis.processes import Process
from tests.support.present import present


def of(make_result, *medians):
    return [Process(i, make_result([9.0, m * 0.9, m, m * 1.1])) for i, m in enumerate(medians)]


def test_one_process_is_described_by_its_steps_and_says_so(make_result):
    process = Process(1, make_result([9.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]))
    interval = statistics.step_interval([process])
    assert (interval.median, interval.n, interval.processes, interval.over) == (3.5, 6, 1, "steps")
    assert (interval.low, interval.high) == (1.0, 6.0)


def test_several_processes_count_as_one_value_each(make_result):
    interval = statistics.step_interval(of(make_result, 1, 2, 3, 4, 5, 6, 100))
    assert (interval.median, interval.n, interval.processes, interval.over) == (4, 7, 7, "processes")
    assert (interval.low, interval.high) == (1, 100)


def test_the_spread_stands_beside_the_median(make_result):
    found = statistics.step_interval(of(make_result, 1, 2, 3, 4, 10))
    assert (found.q1, found.q3) == (2, 4)
    assert found.cv == pytest.approx(stats.variation([1, 2, 3, 4, 10], ddof=1))
    assert statistics.step_interval([Process(1, make_result([9.0, 2.0]))]).cv is None


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([1, 2, 3, 4, 7], []),
        ([1, 2, 3, 4, 7.01], [4]),
        ([-1.01, 2, 3, 4, 5], [0]),
        *([[value] * n, []] for n in (1, 3) for value in (0.1, 0.003911234567)),
    ],
)
def test_outliers_are_beyond_tukeys_fences(values, found):
    """Quartiles 2 and 4: the fences are at -1 and 7. Equal values are none."""
    assert statistics.outliers(values) == found


def test_too_few_processes_have_no_interval(make_result):
    interval = statistics.step_interval(of(make_result, 1, 2, 3, 4, 5))
    assert (interval.median, interval.low, interval.high) == (3, None, None)


@given(st.lists(st.floats(0.001, 1000), min_size=6, max_size=40, unique=True))
def test_the_interval_is_that_of_scipy(values):
    expected = stats.quantile_test(values, q=0, p=0.5).confidence_interval(0.95)
    found = median_interval(values, 0.95)
    assert found == (expected.low, expected.high)


@pytest.mark.parametrize("n", [1023, 1024, 1500, 100_000])
def test_the_interval_of_many_steps_is_that_of_scipy(n):
    values = np.random.default_rng(n).permutation(n).astype(float)
    expected = stats.quantile_test(values, q=0, p=0.5).confidence_interval(0.95)
    assert median_interval(list(values), 0.95) == (expected.low, expected.high)


def test_superiority_counts_ties_half():
    assert statistics.superiority([2, 2], [1, 1], False) == 1.0
    assert statistics.superiority([1, 1], [2, 2], False) == 0.0
    assert statistics.superiority([3, 4], [1, 3], False) == pytest.approx(3.5 / 4)
    assert statistics.superiority([3, 4], [3, 5], True) == pytest.approx(0.25)


def test_holms_example():
    # Holm's procedure on 0.01, 0.04, 0.03, 0.005: 4 x 0.005, 3 x 0.01, 2 x 0.03, and never below the one before.
    assert statistics.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert statistics.holm([0.6, 0.7]) == [1.0, 1.0]
    assert statistics.holm([]) == []


def drifting(make_result, n, occasion=None):
    """Processes that become slower from block to block, in any order."""
    made = [Process(100 + n - i, make_result([9.0, *[1 + 0.01 * i] * 2]), occasion=occasion, block=i) for i in range(n)]
    return [made[7 * i % n] for i in range(n)]


def test_a_median_of_values_that_are_not_independent_has_no_bounds(make_result):
    """Fewer than ten values cannot show it."""
    assert statistics.step_interval(drifting(make_result, 9)).low is not None
    found = statistics.step_interval(drifting(make_result, 12))
    assert (found.median, found.low, found.high) == (pytest.approx(1.055), None, None)
    one = Process(1, make_result([9.0, *(1 + 0.01 * i for i in range(12))]))
    assert statistics.step_interval([one]).low is None
    assert statistics.step_interval([Process(1, make_result([9.0, *(1 + 0.01 * (7 * i % 12) for i in range(12))]))]).low
    days = of(make_result, *[level + 0.001 * (7 * i % 8) for level in (1.0, 1.1) for i in range(8)])
    days = [dataclasses.replace(p, occasion=i // 8, block=i % 8) for i, p in enumerate(days)]
    assert statistics.step_interval([p for both in zip(days[:8], days[8:], strict=True) for p in both]).low is None
    assert statistics.step_interval(days[:8]).low is not None


@pytest.mark.parametrize("processes", [6, 12])
def test_a_median_that_a_stopping_rule_looked_at_has_the_bounds_of_a_confidence_sequence(make_result, processes):
    steps_s = [1.0 + 0.01 * (7 * i % processes) for i in range(processes)]
    made = [Process(i, make_result([9.0, s, s]), stop_rule=True) for i, s in enumerate(steps_s)]
    found = statistics.step_interval(made)
    assert (found.low, found.high) == (sequential_bounds(steps_s) or (None, None))
    fixed = present(median_interval(steps_s, 0.95))
    assert found.low is None or (found.low < fixed[0] and fixed[1] < present(found.high))
    assert statistics.step_interval(made[:1]).over == "steps"
