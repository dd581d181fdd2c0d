"""Simulated tunings with known true times: coverage, the share's bound, regret (bench/tuning.py)."""

import pytest

from bench import tuning

pytestmark = pytest.mark.slow
NOISES = ("gauss", "drift", "blocks", "outliers")


@pytest.mark.timeout(900)
def test_the_confirmed_ratio_covers_and_the_share_holds_and_the_search_is_better_than_random():
    """Each of 24 ratios is covered with 95 %, so that fewer than 18 are at most 1 in 10,000; so with the bound."""
    found, at_random = (
        [tuning.simulate(seed, noise, 48, sampler) for noise in NOISES for seed in range(6)]
        for sampler in ("tpe", "random")
    )
    told, other = tuning.summary(found), tuning.summary(at_random)
    assert told["covered"] >= 18 / 24
    assert told["bound_holds"] >= 18 / 24
    assert abs(told["bias"]) < 0.02
    assert told["regret_median"] < other["regret_median"]
    assert told["regret_median"] < 0.2
