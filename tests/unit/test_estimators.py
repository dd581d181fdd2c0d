import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from taskloom.analysis import estimators
from taskloom.analysis.estimators import anytime, bare, e_value, of_logs, paired, unpaired, walsh, walsh_rows
from tests.support.interval import interval
from tests.support.present import present

PUBLISHED_X = [1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30]  # Hollander & Wolfe 1999, table 3.1
PUBLISHED_Y = [0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29]


def test_a_published_series():
    """Depression scores (Hollander & Wolfe 1999, examples 3.1 and 3.3; R's wilcox.test with conf.int)."""
    differences = np.array(PUBLISHED_Y) - np.array(PUBLISHED_X)
    centre, low, high = walsh(differences)
    assert (centre, low, high) == pytest.approx((-0.46, -0.786, -0.010))


def test_hodges_lehmann_is_the_median_of_walsh_averages_by_brute_force():
    logs = np.random.default_rng(0).normal(0, 1, 9)
    means = [(a + b) / 2 for a, b in itertools.combinations_with_replacement(logs, 2)]
    assert walsh(logs)[0] == pytest.approx(np.median(means))
    a, b = np.exp(logs[:4]), np.exp(logs[4:])
    expected = math.exp(np.median(np.subtract.outer(logs[:4], logs[4:])))
    assert unpaired(a.tolist(), b.tolist()).value == pytest.approx(expected)


@pytest.mark.parametrize("spread", [0.2, 1.0, 5.0])
@pytest.mark.parametrize(("n_a", "n_b"), [(6, 6), (6, 20), (20, 6), (9, 12)])
def test_the_interval_of_two_samples_is_what_either_test_does_not_reject(n_a, n_b, spread):
    """By brute force over all gaps between differences."""
    rng = np.random.default_rng(n_a + n_b)
    a, b = rng.normal(0, 1, n_a), rng.normal(0.3, spread, n_b)
    found, ends = unpaired(np.exp(a), np.exp(b)), np.sort(np.subtract.outer(a, b), axis=None)

    def p_value(shift):
        return max(stats.mannwhitneyu(a - shift, b, method="exact").pvalue, stats.brunnermunzel(a - shift, b).pvalue)

    likely = [gap for gap in itertools.pairwise(ends) if p_value(sum(gap) / 2) >= 0.05]
    assert [math.log(end) for end in interval(found)] == pytest.approx([likely[0][0], likely[-1][1]])
    assert found.p_value == pytest.approx(p_value(0.0))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-5, 5).map(lambda x: round(x, 3)), min_size=6, max_size=16, unique_by=abs))
def test_the_interval_is_what_the_test_does_not_reject(values):
    """p is above 5 % just inside both ends and below 5 % just outside."""
    logs = np.array(values)
    low, high = map(present, walsh(logs)[1:])
    width = 1e-5
    for inside, outside in ((low + width, low - width), (high - width, high + width)):
        if high - low > 4 * width:
            assert stats.wilcoxon(logs - inside, method="exact").pvalue > 0.05
        assert stats.wilcoxon(logs - outside, method="exact").pvalue < 0.05


@pytest.mark.parametrize("n", [401, 1500])
def test_many_values_are_counted_instead_of_listed(n, monkeypatch):
    rng = np.random.default_rng(n)
    logs, a, b = rng.normal(0, 1, n), np.exp(rng.normal(0, 1, n)), np.exp(rng.normal(0.1, 1, n // 2))
    found = walsh(logs), unpaired(a, b)
    monkeypatch.setattr(estimators, "MANY", 10**6)
    assert found[0] == pytest.approx(walsh(logs), abs=1e-9)
    assert found[1].value == pytest.approx(unpaired(a, b).value, rel=1e-9)
    assert found[1].low == pytest.approx(unpaired(a, b).low, rel=1e-9)


def test_fewer_than_six_have_no_interval():
    five, six = [1.1, 1.2, 1.3, 1.4, 1.5], [1.1, 1.2, 1.3, 1.4, 1.5, 1.6]
    assert (paired(five, [1.0] * 5).low, paired(five, [1.0] * 5).high) == (None, None)
    assert paired(five, [1.0] * 5).p_value == pytest.approx(2 / 32)
    assert (paired(six, [1.0] * 6).low, paired(six, [1.0] * 6).high) == pytest.approx((1.1, 1.6))
    assert unpaired(five, six).low is None
    assert unpaired(six, six).low is not None
    assert (bare(six, six).low, bare(six, six).p_value) == (None, None)


def test_pairs_are_kept_together():
    a = [1.0, 10.0, 100.0, 1000.0, 10_000.0, 3.0]
    found = paired(a, [value / 2 for value in a])
    assert (found.low, found.value, found.high, found.middle) == pytest.approx((2.0,) * 4)
    assert present(unpaired(a, [value / 2 for value in a]).high) > 10


def test_rows_are_walsh_each():
    rows = np.random.default_rng(1).normal(0, 1, (5, 9))
    for row, *found in zip(rows, *walsh_rows(rows), strict=True):
        assert found == pytest.approx(walsh(row))
    assert np.isinf(walsh_rows(rows[:, :5])[1]).all()


def test_the_bet_on_signs_is_a_fair_game():
    """The bet's mean over all outcomes of n coin tosses is 1 for every n, so choosing when to look gains nothing."""
    for n in (1, 5, 12):
        wealth = [math.comb(n, k) * math.exp(estimators.log_wealth(k, n - k)) for k in range(n + 1)]
        assert sum(wealth) / 2**n == pytest.approx(1)


def test_the_confidence_sequence_holds_at_every_look():
    """With a look after each of 60 pairs, fewer than 1 of 20 series ever exclude the true value."""
    rng = np.random.default_rng(2)
    missed = called = 0
    for _ in range(200):
        logs = rng.standard_t(2, 60) * 0.01
        looks = [anytime(logs[:n]) for n in range(7, 61)]
        missed += any(low > 1 or high < 1 for low, high in map(interval, looks))
        called += any(present(look.p_value) < 0.05 for look in looks)
    assert missed <= 10
    assert called <= 10


def test_seven_of_one_sign_are_what_an_anytime_answer_takes():
    six = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    assert anytime(six).low is None
    assert present(anytime(np.append(six, 0.7)).low) > 1
    assert e_value(np.append(six, 0.7)) == pytest.approx(2**7 * math.comb(14, 7) / 4**7)
    assert of_logs(np.append(six, 0.7)).p_value == pytest.approx(2 / 128)


@pytest.mark.parametrize(
    ("test", "n", "p"), [("signed-rank", 6, 1 / 32), ("mann-whitney", 4, 1 / 35), ("signs", 1, 1.0)]
)
def test_the_smallest_p_value(test, n, p):
    assert estimators.smallest_p_value(test, n) == pytest.approx(p)
