"""One ratio from strata that differ."""

import numpy as np
import pytest

from taskloom.analysis.estimators import of_logs
from taskloom.analysis.pooling import pool
from tests.support.interval import interval
from tests.support.present import present


def spread(centre, deviation, pairs):
    return centre + deviation * np.linspace(-1, 1, pairs)


def test_the_p_value_of_few_strata_is_of_their_mean_too():
    """20 pairs of 2 % at one place and three around 0 at another: signed ranks of all pairs are significant, but the
    mean over the two places is not, since three pairs say little about theirs."""
    strata = [spread(0.02, 0.001, 20), spread(0.0, 0.05, 3)]
    assert present(of_logs(np.concatenate(strata)).p_value) < 0.01
    found = pool(strata, "places").estimate
    low, high = interval(found)
    assert low < 1 < high
    assert present(found.p_value) > 0.05


@pytest.mark.parametrize("centre", [0.0, 0.005, 0.01, 0.02, -0.05])
def test_the_interval_excludes_1_wherever_the_p_value_is_small(centre):
    found = pool([spread(centre, 0.02, 8), spread(centre / 2, 0.03, 5)], "occasions").estimate
    low, high = interval(found)
    assert (present(found.p_value) < 0.05) <= (not low <= 1 <= high)


def test_equal_ratios_leave_the_rank_test_to_decide():
    found = pool([np.full(4, 0.02), np.full(4, 0.02)], "places").estimate
    assert found.low == found.high == pytest.approx(np.exp(0.02))
    assert found.p_value == pytest.approx(2 / 2**8)
