"""AdamW against PyTorch's in float64: float32 arithmetic on one element, to 1e-6 a step."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from gpt2core.optimizers.adamw import adamw_update

Load = Callable[[str], dict[str, np.ndarray]]
ONE, LR = np.float32(1), 1e-2


@pytest.mark.parametrize("name", ["adamw", "adamw_decay"])
def test_ten_steps(golden: Load, name: str) -> None:
    g = golden(name)
    settings, gradients = g["settings"], g["gradients"]
    weights, first, second = g["weights"].copy(), np.zeros(37, np.float32), np.zeros(37, np.float32)
    for step in range(10):
        for begin, end in ((0, 20), (20, 37)):
            m, v = first[begin:], second[begin:]
            adamw_update(
                weights, gradients[step], m, v, settings, LR, settings[4], ONE, step, begin, end, begin
            )
        if step + 1 in (1, 2, 10):
            np.testing.assert_allclose(weights, g[f"weights{step + 1}"], rtol=2e-6, atol=1e-6)
            np.testing.assert_allclose(first, g[f"first{step + 1}"], rtol=1e-5, atol=1e-8)
            np.testing.assert_allclose(second, g[f"second{step + 1}"], rtol=1e-5, atol=1e-10)


def test_the_size_of_a_step_itself(golden: Load) -> None:
    """Compare the change instead of the much larger weight: the first step is lr * g / (|g| + eps), to 1e-5."""
    g = golden("adamw")
    weights, first, second = np.zeros(37, np.float32), np.zeros(37, np.float32), np.zeros(37, np.float32)
    adamw_update(weights, g["gradients"][0], first, second, g["settings"], LR, g["settings"][4], ONE, 0, 0, 37, 0)
    g64 = g["gradients"][0].astype(np.float64)
    np.testing.assert_allclose(weights, -1e-2 * g64 / (np.abs(g64) + 1e-8), rtol=1e-5)


def test_a_factor_scales_the_gradients(golden: Load) -> None:
    g = golden("adamw")
    found = []
    for factor, gradients in ((np.float32(0.25), g["gradients"][0]), (ONE, np.float32(0.25) * g["gradients"][0])):
        weights, first, second = g["weights"].copy(), np.zeros(37, np.float32), np.zeros(37, np.float32)
        adamw_update(weights, gradients, first, second, g["settings"], LR, g["settings"][4], factor, 0, 0, 37, 0)
        found.append((weights, first, second))
    for scaled, plain in zip(*found, strict=True):
        np.testing.assert_allclose(scaled, plain, rtol=1e-6)


def test_other_elements_are_left_alone(golden: Load) -> None:
    g = golden("adamw")
    weights, first, second = g["weights"].copy(), np.full(37, 2, np.float32), np.full(37, 3, np.float32)
    own = first[10:], second[10:]
    adamw_update(weights, g["gradients"][0], *own, g["settings"], LR, g["settings"][4], ONE, 0, 10, 12, 10)
    outside = np.delete(np.arange(37), [10, 11])
    np.testing.assert_array_equal(weights[outside], g["weights"][outside])
    assert (first[outside] == 2).all()
    assert (second[outside] == 3).all()
    assert (weights[10:12] != g["weights"][10:12]).all()


def test_nothing_moves_without_a_gradient() -> None:
    weights, zero = np.ones(5, np.float32), np.zeros(5, np.float32)
    settings = np.array([1e-2, 0.9, 0.999, 1e-8, 0.0])
    adamw_update(weights, zero, zero.copy(), zero.copy(), settings, 1e-2, settings[4], ONE, 0, 0, 5, 0)
    assert (weights == 1).all()
    settings[4] = 0.5
    adamw_update(weights, zero, zero.copy(), zero.copy(), settings, 1e-2, settings[4], ONE, 0, 0, 5, 0)
    np.testing.assert_allclose(weights, 1 - 1e-2 * 0.5, rtol=1e-7)


def test_nan_spreads_to_weight_and_moments() -> None:
    weights, first, second = np.ones(3, np.float32), np.zeros(3, np.float32), np.zeros(3, np.float32)
    gradients = np.array([1, np.nan, 1], np.float32)
    adamw_update(weights, gradients, first, second, np.array([1e-2, 0.9, 0.999, 1e-8]), LR, 0.0, ONE, 0, 0, 3, 0)
    for array in (weights, first, second):
        assert np.isnan(array).tolist() == [False, True, False]
