"""Error rates of compare() on simulated data: it finds real differences and reports no others.

A process's median step time varies by 1 % around its block's, blocks by 2 %.
"""

from collections import Counter

import numpy as np
import pytest

from taskloom.analysis import estimators
from taskloom.analysis.comparison import decide
from tests.support.present import present

pytestmark = pytest.mark.slow

SIMULATIONS = 1000
PROCESSES = 12


def verdicts(factor, paired):
    """How many of SIMULATIONS comparisons gave each verdict, B taking `factor` times as long as A."""
    rng = np.random.default_rng(7)
    blocks = rng.normal(1.0, 0.02, (SIMULATIONS, 1, PROCESSES)) if paired else 1.0
    times = blocks * rng.normal(1.0, 0.01, (SIMULATIONS, 2, PROCESSES)) * np.array([[1.0], [factor]])
    return Counter(decide(list(a), list(b), paired).verdict for a, b in times)


@pytest.mark.parametrize("paired", [True, False])
def test_a_planted_difference_of_three_percent_is_found(paired):
    found = verdicts(1.03, paired)
    assert found["slower"] >= 0.95 * SIMULATIONS
    assert found["faster"] == 0


@pytest.mark.parametrize("paired", [True, False])
def test_where_nothing_is_planted_nothing_is_called(paired):
    """The nominal rate of false alarms is at most one in 20; the noise floor, declared beforehand, reduces it."""
    found = verdicts(1.0, paired)
    assert found["faster"] + found["slower"] <= 0.05 * SIMULATIONS


@pytest.mark.parametrize("paired", [True, False])
def test_the_tests_themselves_keep_their_level(paired):
    """Without a difference, p < 0.05 in one of 20 samples: at most four standard errors more, and not far fewer."""
    rng = np.random.default_rng(11)
    test = estimators.paired if paired else estimators.unpaired
    samples = rng.normal(1.0, 0.01, (SIMULATIONS, 2, PROCESSES))
    called = sum(present(test(list(a), list(b)).p_value) < 0.05 for a, b in samples)
    assert 0.025 * SIMULATIONS <= called <= 0.05 * SIMULATIONS + 4 * (0.05 * 0.95 * SIMULATIONS) ** 0.5
