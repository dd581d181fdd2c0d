"""Rank tests compared with SciPy, which enumerates permutations if there are ties, and with brute force."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from taskloom.analysis.rank_tests import (
    brunner_munzel_p_value,
    doubled_midranks,
    mann_whitney_cut,
    mann_whitney_p_value,
    signed_rank_cut,
    signed_rank_p_value,
)
from tests.support.present import present

EVERY = stats.PermutationMethod(n_resamples=100_000)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(-4, 4), min_size=2, max_size=8))
def test_signed_ranks_are_exact_with_ties_and_zeros(values):
    found = signed_rank_p_value(np.array(values, float))
    if not any(values):
        assert found == 1.0
        return
    # SciPy does not permute the signs of zeros either: zsplit counts them half on each side.
    expected = stats.wilcoxon(values, zero_method="zsplit", method=EVERY).pvalue
    assert found == pytest.approx(expected, abs=1e-12)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=2, max_size=5), st.lists(st.integers(0, 4), min_size=2, max_size=5))
def test_mann_whitney_is_exact_with_ties(a, b):
    expected = stats.mannwhitneyu(a, b, method=EVERY).pvalue
    assert mann_whitney_p_value(np.array(a, float), np.array(b, float)) == pytest.approx(expected, abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 6), min_size=3, max_size=12), st.lists(st.integers(0, 6), min_size=3, max_size=12))
def test_brunner_munzel_is_scipys(a, b):
    found = brunner_munzel_p_value(np.array(a, float), np.array(b, float))
    if max(a) < min(b) or max(b) < min(a):
        assert found == 0.0
    elif len({*a, *b}) == 1:
        assert found == 1.0
    else:
        assert found == pytest.approx(stats.brunnermunzel(a, b).pvalue, abs=1e-12)


def test_the_published_pain_scores_differ():
    """Pain after two treatments (Brunner & Munzel 2000, table 1; the p-value in R's lawstat is 0.005786)."""
    a, b = [1, 2, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 1, 1], [3, 3, 4, 3, 1, 2, 3, 1, 1, 5, 4]
    assert brunner_munzel_p_value(np.array(a, float), np.array(b, float)) == pytest.approx(0.005786, abs=1e-6)


def test_the_asymptotic_test_would_have_called_what_the_exact_one_does_not():
    a, b = [1.0, 1.0, 1.0, 2.0, 2.0], [2.0, 2.0, 2.0, 3.0, 3.0]
    assert stats.mannwhitneyu(a, b).pvalue < 0.05
    every = [sum(doubled_midranks(np.array(a + b))[list(chosen)]) for chosen in itertools.combinations(range(10), 5)]
    exact = 2 * np.mean(np.array(every) <= sum(doubled_midranks(np.array(a + b))[:5]))
    assert mann_whitney_p_value(np.array(a), np.array(b)) == pytest.approx(exact)
    assert exact > 0.05


def test_ratios_that_rounding_makes_unequal_are_ties():
    """Five ratios of 1.2 from different times and one of 1 / 1.2 all have the same rank."""
    b = np.array([1.0, 0.7, 0.3, 1.7, 0.9, 1.3])
    a = b * np.array([1.2, 1.2, 1.2, 1.2, 1.2, 1 / 1.2])
    logs = np.log(a) - np.log(b)
    assert len(set(np.abs(logs))) > 1
    assert signed_rank_p_value(logs) == pytest.approx(2 * 7 / 64)


@pytest.mark.parametrize("n", [6, 13, 60, 150])
def test_without_ties_both_are_those_of_scipy(n):
    rng = np.random.default_rng(n)
    values, a, b = rng.normal(0.1, 1, n), rng.normal(0, 1, n // 3), rng.normal(0.3, 1, n // 3)
    assert signed_rank_p_value(values) == pytest.approx(stats.wilcoxon(values, method="exact").pvalue, rel=1e-6)
    assert mann_whitney_p_value(a, b) == pytest.approx(stats.mannwhitneyu(a, b, method="exact").pvalue, rel=1e-6)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("size", [201, 250, 2000])
def test_the_normal_approximations_are_those_of_scipy_to_the_last_bit(size, seed):
    rng = np.random.default_rng(seed)
    for values in (rng.normal(0.05, 1, size), rng.integers(-3, 5, size).astype(float)):
        values = np.round(values, 9)
        expected = stats.wilcoxon(values, zero_method="pratt", correction=True, method="asymptotic").pvalue
        assert signed_rank_p_value(values) == expected
        a, b = np.round(values[: size // 3], 9), np.round(values[size // 3 :] + 0.1, 9)
        assert mann_whitney_p_value(a, b) == stats.mannwhitneyu(a, b, method="asymptotic").pvalue


def test_many_values_without_any_difference_are_no_evidence():
    assert signed_rank_p_value(np.zeros(300)) == mann_whitney_p_value(np.ones(200), np.ones(200)) == 1.0


def test_many_values_take_the_normal_approximation_with_ties():
    assert present(signed_rank_cut(201, 0.025)) - present(signed_rank_cut(200, 0.025)) == pytest.approx(86, abs=3)


@pytest.mark.parametrize(("n", "cut"), [(5, None), (6, 0), (7, 2), (8, 3), (9, 5), (10, 8), (20, 52), (50, 434)])
def test_the_signed_ranks_critical_values_are_the_published_ones(n, cut):
    """Wilcoxon & Wilcox 1964, table 2: two-sided 5 %."""
    assert signed_rank_cut(n, 0.025) == cut


@pytest.mark.parametrize(
    ("n_a", "n_b", "cut"), [(3, 3, None), (4, 4, 0), (5, 5, 2), (6, 6, 5), (7, 9, 12), (10, 10, 23), (20, 20, 127)]
)
def test_mann_whitneys_critical_values_are_the_published_ones(n_a, n_b, cut):
    """Siegel & Castellan 1988, table J: two-sided 5 %."""
    assert mann_whitney_cut(n_a, n_b, 0.025) == cut


@pytest.mark.parametrize("sign", [1, -1])
def test_small_p_values_are_exact_on_both_sides(sign):
    """1 minus the other tail would be 0."""
    assert signed_rank_p_value(sign * np.linspace(1, 2, 60)) == pytest.approx(2.0**-59, rel=1e-9, abs=0)
    low, high = np.linspace(1, 2, 30), np.linspace(3, 4, 30)
    expected = 2 / math.comb(60, 30)
    assert mann_whitney_p_value(*((low, high) if sign > 0 else (high, low))) == pytest.approx(expected, rel=1e-6, abs=0)
