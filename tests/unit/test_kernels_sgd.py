"""SGD against PyTorch's in float64: float32 arithmetic on one element, to 1e-6 a step."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from gpt2core.optimizers.sgd import sgd, sgd_update
from gpt2core.step.parameters import Elements

Load = Callable[[str], dict[str, np.ndarray]]
ONE, LR, NONE = np.float32(1), 0.05, np.zeros(0)


@pytest.mark.parametrize("name", ["plain", "momentum", "nesterov"])
def test_ten_steps(golden: Load, name: str) -> None:
    g = golden("sgd")
    settings = g[f"settings_{name}"]
    weights, velocity = g["weights"].copy(), np.zeros(0 if name == "plain" else 37, np.float32)
    for step in range(10):
        for begin, end in ((0, 20), (20, 37)):
            own = velocity[begin:]
            sgd_update(weights, g["gradients"][step], own, settings, LR, settings[3], ONE, begin, end, begin)
        if step + 1 in (1, 2, 10):
            np.testing.assert_allclose(weights, g[f"{name}{step + 1}"], rtol=2e-6, atol=1e-6)


def test_only_its_elements_change(golden: Load) -> None:
    g = golden("sgd")
    weights, velocity = g["weights"].copy(), np.full(37, 2, np.float32)
    sgd_update(weights, g["gradients"][0], velocity[10:], g["settings_momentum"], LR, 0.0, ONE, 10, 12, 10)
    outside = np.delete(np.arange(37), [10, 11])
    np.testing.assert_array_equal(weights[outside], g["weights"][outside])
    assert (velocity[outside] == 2).all()
    assert (weights[10:12] != g["weights"][10:12]).all()


def test_the_rate_of_the_step_and_the_factor_of_clipping(golden: Load) -> None:
    g = golden("sgd")
    settings, gradients = np.array([LR, 0.0, 0.0, 0.0]), g["gradients"][0]
    weights, none = g["weights"].copy(), np.zeros(0, np.float32)
    of = Elements(0, 20, 20, 37, 0, 20, 0, 20)
    sgd(weights, gradients, none, settings, np.array([9.0, 0.25]), np.array([0.5]), 1, of)
    np.testing.assert_allclose(weights, g["weights"] - 0.125 * gradients, rtol=1e-6)
    again = g["weights"].copy()
    sgd(again, gradients, none, settings, NONE, NONE, 1, of)
    np.testing.assert_allclose(again, g["weights"] - np.float32(LR) * gradients, rtol=1e-6)
