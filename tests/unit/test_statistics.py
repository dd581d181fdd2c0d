import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from taskloom.analysis import statistics
from taskloom.analysis.processes import Process


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
    found = statistics.median_interval(values, 0.95)
    assert found == (expected.low, expected.high)


@pytest.mark.parametrize("n", [1023, 1024, 1500, 100_000])
def test_the_interval_of_many_steps_is_that_of_scipy(n):
    values = np.random.default_rng(n).permutation(n).astype(float)
    expected = stats.quantile_test(values, q=0, p=0.5).confidence_interval(0.95)
    assert statistics.median_interval(list(values), 0.95) == (expected.low, expected.high)


@pytest.mark.parametrize(("n_a", "n_b"), [(7, 8), (1, 2), (5, 5), (30, 31)])
def test_order_statistics_give_the_bootstrap(n_a, n_b):
    rng = np.random.default_rng(3)
    a, b = rng.normal(10, 1, n_a), rng.normal(8, 1, n_b)
    found = statistics.ratio_of_medians(list(a), list(b))
    drawn = [
        np.median(a[rng.integers(0, n_a, (100_000, n_a))], axis=1)
        / np.median(b[rng.integers(0, n_b, (100_000, n_b))], axis=1)
    ]
    low, high = np.quantile(drawn, [0.025, 0.975])
    assert found.value == np.median(a) / np.median(b)
    assert found.low == pytest.approx(low, rel=0.005)
    assert found.high == pytest.approx(high, rel=0.005)


def test_a_ratio_is_the_same_every_time():
    a, b = [1.0, 2.0, 3.0], [1.5, 1.7]
    assert statistics.ratio_of_medians(a, b) == statistics.ratio_of_medians(a, b)
    assert statistics.paired_ratio_of_medians(a, a) == statistics.Ratio(1.0, 1.0, 1.0)


def test_pairs_are_resampled_together():
    a = [1.0, 10.0, 100.0, 1000.0, 10_000.0]
    b = [value / 2 for value in a]
    paired = statistics.paired_ratio_of_medians(a, b)
    assert (paired.low, paired.high) == (2.0, 2.0)
    assert statistics.ratio_of_medians(a, b).high > 10


def test_p_values_are_exact_for_small_samples():
    assert statistics.unpaired_p_value([1, 2, 3, 4], [5, 6, 7, 8]) == pytest.approx(2 / 70)
    assert statistics.paired_p_value([1.1, 1.2, 1.3, 1.4, 1.5, 1.6], [1] * 6) == pytest.approx(2 / 64)
    assert statistics.paired_p_value([1, 2], [1, 2]) == 1.0


@pytest.mark.parametrize(("n_a", "n_b", "paired", "p"), [(6, 6, True, 1 / 32), (4, 4, False, 1 / 35), (1, 1, False, 1)])
def test_the_smallest_p_value(n_a, n_b, paired, p):
    assert statistics.smallest_p_value(n_a, n_b, paired) == pytest.approx(p)


def test_superiority_counts_ties_half():
    assert statistics.superiority([2, 2], [1, 1], False) == 1.0
    assert statistics.superiority([1, 1], [2, 2], False) == 0.0
    assert statistics.superiority([3, 4], [1, 3], False) == pytest.approx(3.5 / 4)
    assert statistics.superiority([3, 4], [3, 5], True) == pytest.approx(0.25)


@settings(max_examples=20)
@given(st.lists(st.integers(-4, 4), min_size=2, max_size=8))
def test_the_paired_test_is_exact_with_ties_and_zeros(logs):
    """Against SciPy's, which goes through all signs."""
    a, b = [2.0**value for value in logs], [1.0] * len(logs)
    found = statistics.paired_p_value(a, b)
    if not any(logs):
        assert found == 1.0
        return
    method = stats.PermutationMethod(n_resamples=10_000)
    # SciPy gives zeros no sign to swap either: zsplit counts them half on each side.
    expected = stats.wilcoxon(logs, zero_method="zsplit", method=method).pvalue
    assert found == pytest.approx(expected, abs=1e-12)


def test_the_paired_test_of_many_pairs_is_exact_and_quick():
    rng = np.random.default_rng(0)
    a, b = rng.normal(1, 0.1, 60), rng.normal(1.02, 0.1, 60)
    expected = stats.wilcoxon(np.log(a) - np.log(b), method="exact").pvalue
    assert statistics.paired_p_value(list(a), list(b)) == pytest.approx(expected, rel=1e-9)


def test_holms_example():
    # Holm's procedure on 0.01, 0.04, 0.03, 0.005: 4 x 0.005, 3 x 0.01, 2 x 0.03, and never below the one before.
    assert statistics.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert statistics.holm([0.6, 0.7]) == [1.0, 1.0]
    assert statistics.holm([]) == []
