"""The maximum of 2x2 pixels and its gradient: as PyTorch, of equal values the first one has the gradient."""

from __future__ import annotations

import numpy as np
import pytest

from gpt2core.layers.pooling import max_pool, max_pool_backward


def with_halo(x: np.ndarray) -> np.ndarray:
    return np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0))).astype(np.float32).reshape(len(x), -1)


def pooled(x: np.ndarray) -> np.ndarray:
    count, side, _, C = x.shape
    out = np.full((count, (side // 2 + 2) ** 2 * C), np.nan, np.float32)
    for row0, row1 in ((0, 2), (2, count)):
        max_pool(out, with_halo(x), side, C, row0, row1)
    return out


def gradient(x: np.ndarray, dout: np.ndarray) -> np.ndarray:
    count, side, _, C = x.shape
    dinp = np.full((count, (side + 2) ** 2 * C), np.nan, np.float32)
    for row0, row1 in ((0, 2), (2, count)):
        max_pool_backward(dinp, with_halo(dout), with_halo(x), side, C, row0, row1)
    return dinp


@pytest.mark.parametrize(("side", "C"), [(2, 1), (4, 3), (5, 17), (33, 2)])
def test_the_maximum_and_its_gradient(side: int, C: int) -> None:
    """Values are rectified and coarse, so that many are equal and some windows are 0."""
    rng, S = np.random.default_rng(side), side // 2
    x = np.maximum(rng.integers(-3, 3, size=(3, side, side, C)), 0).astype(np.float32)
    dout = rng.normal(size=(3, S, S, C)).astype(np.float32)
    windows = x[:, : 2 * S, : 2 * S].reshape(3, S, 2, S, 2, C).transpose(0, 1, 3, 2, 4, 5).reshape(3, S, S, 4, C)
    assert np.array_equal(pooled(x), with_halo(windows.max(axis=3)))
    first = windows.argmax(axis=3)  # NumPy's is the first one too
    chosen = (np.arange(4)[:, None] == first[:, :, :, None]) & (windows.max(axis=3)[:, :, :, None] > 0)
    parts = np.where(chosen, dout[:, :, :, None], 0).reshape(3, S, S, 2, 2, C).transpose(0, 1, 3, 2, 4, 5)
    expected = np.zeros_like(x)
    expected[:, : 2 * S, : 2 * S] = parts.reshape(3, 2 * S, 2 * S, C)
    assert np.array_equal(gradient(x, dout), with_halo(expected))


def test_gradients_are_finite_differences() -> None:
    rng = np.random.default_rng(0)
    x, dout = rng.uniform(1, 2, size=(3, 4, 4, 2)), rng.normal(size=(3, 2, 2, 2))
    found = gradient(x, dout).reshape(3, 6, 6, 2)[:, 1:-1, 1:-1]
    for at in ((0, 0, 0, 0), (1, 2, 3, 1), (2, 3, 3, 0)):
        step = np.zeros_like(x)
        step[at] = 1e-3
        grown = (pooled(x + step).astype(float) - pooled(x - step)) * with_halo(dout)
        assert grown.sum() / 2e-3 == pytest.approx(found[at], abs=1e-3)


def test_nan_is_the_maximum() -> None:
    """A diverging run must be seen."""
    for at in range(4):
        x = np.ones((3, 2, 2, 1))
        x[1].flat[at] = np.nan
        assert np.isnan(pooled(x)[1]).sum() == 1
