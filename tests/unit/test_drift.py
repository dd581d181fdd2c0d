"""Drift of values over their order: Kendall's tau by its definition, in little memory."""

from __future__ import annotations

import itertools
import math
import tracemalloc

import numpy as np
import pytest

from taskloom.analysis.diagnosis import diagnose


def tau(values: list[float]) -> float:
    pairs = itertools.combinations(values, 2)
    score = sum((later > earlier) - (later < earlier) for earlier, later in pairs)
    return score / math.comb(len(values), 2)


@pytest.mark.parametrize("digits", [0, 1, 9])
@pytest.mark.parametrize("n", [10, 11, 200])
def test_tau_counts_pairs_also_with_ties(n: int, digits: int) -> None:
    values = np.round(5 + np.random.default_rng(n).normal(size=n), digits).tolist()
    assert diagnose(values).drift == pytest.approx(tau(values), abs=1e-12)
    assert diagnose(sorted(values)).drift == pytest.approx(tau(sorted(values)), abs=1e-12)


def test_the_steps_of_a_long_run_need_no_matrix_of_pairs() -> None:
    values = np.random.default_rng(1).normal(10, 1, 5000)
    tracemalloc.start()
    try:
        diagnose(values)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 5_000_000  # a matrix of 2,000 x 2,000 values has 32 MB
