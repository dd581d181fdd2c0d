"""The rectified linear unit in place, and its gradient."""

from __future__ import annotations

import numpy as np

from gpt2core.layers.rectifier import relu, relu_backward
from tests.support.finite_differences import gradient


def test_rows_are_rectified_and_others_stay() -> None:
    x = np.array([[1, -1, 0], [-2, 3, -0.5], [-4, -5, 6], [-7, 8, -9]], np.float32)
    out = x.copy()
    relu(out, 1, 3)
    assert np.array_equal(out[1:3], np.maximum(x[1:3], 0))
    assert np.array_equal(out[[0, 3]], x[[0, 3]])


def test_its_gradient_is_finite_differences_and_0_at_0() -> None:
    rng = np.random.default_rng(0)
    x, dout = rng.choice([-1, 1], (4, 19)) * rng.uniform(0.5, 2, (4, 19)), rng.normal(size=(4, 19))
    out, dinp = np.maximum(x, 0).astype(np.float32), dout.astype(np.float32)
    out[2, 5] = 0
    relu_backward(dinp, out, 1, 3)
    expected = gradient(lambda each: np.maximum(each, 0), x, dout)
    expected[2, 5], expected[[0, 3]] = 0, dout[[0, 3]]
    np.testing.assert_allclose(dinp, expected, rtol=1e-6, atol=1e-6)


def test_nan_is_not_rectified_away() -> None:
    """A diverging run must be seen."""
    out = np.full((1, 3), np.nan, np.float32)
    relu(out, 0, 1)
    assert np.isnan(out).all()
