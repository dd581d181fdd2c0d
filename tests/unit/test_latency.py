"""Quantiles of step times and their order-statistics bounds."""

import math

import numpy as np
import pytest

from gpt2core.spec.latency import NEEDED, QUANTILES, latency, quantile, quantile_bounds
from tests.support.present import present


def test_an_interval_needs_the_stated_number_of_steps():
    for name, needed in NEEDED.items():
        for steps, known in ((needed - 1, False), (needed, True)):
            found = latency([1.0 + i for i in range(steps)])
            assert (found[f"{name}_ci95_s"] is not None) is known, (name, steps)
    assert NEEDED["p99"] == math.ceil(math.log(0.05) / math.log(0.99)) == 299
    assert latency([2.0])["max_s"] == latency([2.0])["p99_s"] == 2.0


def test_quantiles_are_times_of_steps():
    times = [float(i) for i in range(1, 1001)][::-1]
    found = latency(times)
    assert (found["p50_s"], found["p90_s"], found["p99_s"], found["max_s"]) == (500.5, 900.0, 990.0, 1000.0)
    assert quantile([3.0, 1.0], 0.99) == 3.0
    assert quantile([3.0, 1.0], 0.5) == 1.0


@pytest.mark.parametrize("name", ["p90", "p99"])
def test_each_bound_holds_with_95_percent(name):
    random, share, n = np.random.default_rng(1), QUANTILES[name], 400
    bounds = [present(quantile_bounds(random.exponential(size=n).tolist(), share)) for _ in range(400)]
    true = -math.log(1 - share)
    for end in (0, 1):
        held = np.mean([(each[0] <= true, each[1] >= true)[end] for each in bounds])
        assert held > 0.92, end
