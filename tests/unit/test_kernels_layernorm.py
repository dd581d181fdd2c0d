"""LayerNorm against golden values: float32 sums over 24 channels and 7 rows, to 5e-6 of values of order 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpt2core.layers.layernorm import layernorm_backward, layernorm_backward_weight, layernorm_forward

Load = Callable[[str], dict[str, np.ndarray]]
CLOSE: dict[str, Any] = {"rtol": 5e-6, "atol": 5e-6}


def forward(g: dict[str, np.ndarray], row0: int, row1: int, fill: float) -> dict[str, np.ndarray]:
    N = len(g["inp"])
    made = {"out": np.full_like(g["inp"], fill), "mean": np.full(N, fill, np.float32)}
    made["rstd"] = made["mean"].copy()
    layernorm_forward(made["out"], made["mean"], made["rstd"], g["inp"], g["weight"], g["bias"], row0, row1)
    return made


def test_forward(golden: Load) -> None:
    g = golden("layernorm")
    for name, got in forward(g, 0, 7, np.nan).items():
        np.testing.assert_allclose(got, g[name], **CLOSE, err_msg=name)


def test_forward_leaves_other_rows_alone(golden: Load) -> None:
    g = golden("layernorm")
    for name, got in forward(g, 2, 5, -7).items():
        np.testing.assert_allclose(got[2:5], g[name][2:5], **CLOSE, err_msg=name)
        assert (np.delete(got, range(2, 5), axis=0) == -7).all(), name


def test_a_constant_row_becomes_the_bias() -> None:
    inp, weight, bias = np.full((1, 24), 3.0, np.float32), np.ones(24, np.float32), np.arange(24, dtype=np.float32)
    got = forward({"inp": inp, "weight": weight, "bias": bias}, 0, 1, np.nan)
    np.testing.assert_allclose(got["out"][0], bias, atol=1e-4)
    np.testing.assert_allclose(got["rstd"], 1 / np.sqrt(1e-5), rtol=1e-4)


def test_a_large_mean_costs_little_accuracy(golden: Load) -> None:
    """The variance is summed from differences to the mean, not from squares."""
    g = golden("layernorm")
    moved = {**g, "inp": (g["inp"].astype(np.float64) + 1000).astype(np.float32)}
    exact = moved["inp"].astype(np.float64)
    exact = (exact - exact.mean(1, keepdims=True)) / np.sqrt(exact.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(forward(moved, 0, 7, np.nan)["out"], exact * g["weight"] + g["bias"], atol=1e-3)


def test_nan_stays_in_its_row(golden: Load) -> None:
    g = golden("layernorm")
    inp = g["inp"].copy()
    inp[3, 5] = np.nan
    out = forward({**g, "inp": inp}, 0, 7, 0.0)["out"]
    assert np.isnan(out[3]).all()
    assert np.isfinite(np.delete(out, 3, axis=0)).all()


def test_backward_in_slices_and_in_place_with_the_residual_gradient_added(golden: Load) -> None:
    g = golden("layernorm")
    mean, rstd = g["mean"].astype(np.float32), g["rstd"].astype(np.float32)
    residual = np.random.default_rng(0).standard_normal(g["inp"].shape, dtype=np.float32)
    dinp, out, partial = g["inp"].copy(), g["dout"].copy(), np.full((4, 48), -7, np.float32)
    for slot, (row0, row1) in enumerate(((0, 3), (3, 4), (4, 7))):
        before = dinp.copy(), out.copy()
        layernorm_backward(dinp, out, partial, residual, g["weight"], g["bias"], mean, rstd, row0, row1, slot)
        for now, then in zip((dinp, out), before, strict=True):
            np.testing.assert_array_equal(np.delete(now, range(row0, row1), 0), np.delete(then, range(row0, row1), 0))
    np.testing.assert_allclose(dinp, g["dinp"] + residual, **CLOSE)
    np.testing.assert_allclose(out, g["out"], **CLOSE)
    assert (partial[3] == -7).all()
    dweight, dbias = np.full(24, np.nan, np.float32), np.full(24, np.nan, np.float32)
    layernorm_backward_weight(dweight, dbias, partial, 0, 3, 0)
    np.testing.assert_allclose(dweight, g["dweight"], **CLOSE)
    np.testing.assert_allclose(dbias, g["dbias"], **CLOSE)
    layernorm_backward_weight(dweight, dbias, partial, 0, 3, 1)
    np.testing.assert_allclose(dweight, 2 * g["dweight"], **CLOSE)
    np.testing.assert_allclose(dbias, 2 * g["dbias"], **CLOSE)


def test_backward_without_a_residual_gradient(golden: Load) -> None:
    g = golden("layernorm")
    mean, rstd = g["mean"].astype(np.float32), g["rstd"].astype(np.float32)
    dinp, partial = g["inp"].copy(), np.empty((1, 48), np.float32)
    none = np.empty((0, 0), np.float32)
    layernorm_backward(dinp, g["dout"].copy(), partial, none, g["weight"], g["bias"], mean, rstd, 0, 7, 0)
    np.testing.assert_allclose(dinp, g["dinp"], **CLOSE)


def test_backward_computes_the_same_output_again() -> None:
    """Bit by bit: a weight's gradient is computed from the forward pass's input of its layer."""
    inp, dout = np.random.default_rng(1).standard_normal((2, 50, 777), dtype=np.float32)
    weight, bias = np.random.default_rng(2).standard_normal((2, 777), dtype=np.float32)
    made = forward({"inp": inp, "weight": weight, "bias": bias}, 0, 50, np.nan)
    partial, none = np.empty((1, 2 * 777), np.float32), np.empty((0, 0), np.float32)
    layernorm_backward(inp, dout, partial, none, weight, bias, made["mean"], made["rstd"], 0, 50, 0)
    np.testing.assert_array_equal(dout, made["out"])
