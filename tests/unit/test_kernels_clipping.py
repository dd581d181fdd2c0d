"""The limit on the gradients' norm, against NumPy in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gpt2core.optimizers.clipping import clip, gradient_squares
from gpt2core.step.control import ASKED, STOP


def test_squares_of_two_ranges_go_to_their_slot() -> None:
    gradients = np.random.default_rng(0).standard_normal(5000, dtype=np.float32)
    squares = np.full(3, -7.0)
    gradient_squares(squares, gradients, 10, 3011, 4000, 4005, 1)
    g = gradients.astype(np.float64)
    assert squares[1] == pytest.approx((g[10:3011] ** 2).sum() + (g[4000:4005] ** 2).sum(), rel=1e-12)
    gradient_squares(squares, gradients, 0, 5, 0, 0, 2)
    assert squares.tolist() == [-7.0, squares[1], pytest.approx((g[:5] ** 2).sum(), rel=1e-12)]


def test_small_gradients_count_in_a_large_sum() -> None:
    """Ten million values of 1e-4 beside one of 100: a float32 sum would lose them."""
    gradients = np.full(10_000_001, 1e-4, np.float32)
    gradients[0] = 100
    squares = np.zeros(1)
    gradient_squares(squares, gradients, 0, len(gradients), 0, 0, 0)
    assert squares[0] == pytest.approx(1e4 + 1e7 * float(np.float32(1e-4)) ** 2, rel=1e-9)


def settings(limit: float) -> np.ndarray:
    """The optimizer's settings; clipping reads the last one."""
    return np.array([0.0] * 5 + [limit])


@pytest.mark.parametrize(("limit", "factor"), [(10.0, 1.0), (5.0, 5.0 / (5.0 + 1e-6)), (1.0, 1.0 / (5.0 + 1e-6))])
def test_the_factor_and_the_norm(limit: float, factor: float) -> None:
    clipping, norms, control = np.full(1, np.nan), np.full(3, -7.0), np.zeros(8, np.int64)
    clip(clipping, norms, control, np.array([9.0, 16.0]), settings(limit), 1, STOP)
    assert clipping[0] == pytest.approx(factor, rel=1e-15)
    assert norms.tolist() == [-7.0, 5.0, -7.0]
    assert not control.any()


def test_no_gradient_at_all() -> None:
    clipping, norms, control = np.full(1, np.nan), np.full(1, np.nan), np.zeros(8, np.int64)
    clip(clipping, norms, control, np.zeros(2), settings(1.0), 0, STOP)
    assert (clipping[0], norms[0]) == (1.0, 0.0)


@pytest.mark.parametrize("stop", [STOP, ASKED])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_norm_that_is_not_finite_asks_to_stop(bad: float, stop: int) -> None:
    clipping, norms, control = np.ones(1), np.zeros(1), np.zeros(8, np.int64)
    clip(clipping, norms, control, np.array([1.0, bad]), settings(1.0), 0, stop)
    assert not math.isfinite(norms[0])
    assert np.flatnonzero(control).tolist() == [stop]
