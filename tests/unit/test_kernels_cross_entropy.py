"""Softmax and cross-entropy in place, against golden values: sums over 50 exponentials, to 2e-6."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpt2core.layers.loss import cross_entropy, cross_entropy_of_halves, mean_loss

Load = Callable[[str], dict[str, np.ndarray]]
CLOSE: dict[str, Any] = {"rtol": 2e-6, "atol": 2e-7}
V = 50


def run(logits: np.ndarray, targets: np.ndarray, row0: int, row1: int) -> tuple[np.ndarray, np.ndarray]:
    dlogits, loss = logits.copy(), np.full(len(logits), -7, np.float32)
    cross_entropy(dlogits, loss, targets, V, 1, row0, row1)
    return dlogits, loss


def test_loss_and_gradient(golden: Load) -> None:
    g = golden("cross_entropy")
    dlogits, loss = run(g["logits"], g["targets"], 0, 7)
    np.testing.assert_allclose(loss, g["loss"], **CLOSE)
    np.testing.assert_allclose(dlogits, g["dlogits"], **CLOSE)
    assert not dlogits[:, V:].any()


def test_other_rows_are_left_alone_and_the_mean_is_over_all(golden: Load) -> None:
    g = golden("cross_entropy")
    dlogits, loss = run(g["logits"], g["targets"], 2, 5)
    np.testing.assert_allclose(loss[2:5], g["loss"][2:5], **CLOSE)
    np.testing.assert_allclose(dlogits[2:5], g["dlogits"][2:5], **CLOSE)
    assert (loss[[0, 1, 5, 6]] == -7).all()
    np.testing.assert_array_equal(dlogits[[0, 1, 5, 6]], g["logits"][[0, 1, 5, 6]])


@pytest.mark.parametrize("padding", [math.nan, math.inf, 1e30])
def test_padded_columns_take_no_part(golden: Load, padding: float) -> None:
    g = golden("cross_entropy")
    logits = g["logits"].copy()
    logits[:, V:] = padding
    dlogits, loss = run(logits, g["targets"], 0, 7)
    np.testing.assert_allclose(loss, g["loss"], **CLOSE)
    assert not dlogits[:, V:].any()


@pytest.mark.parametrize("shift", [-1e4, 1e4])
def test_large_logits_do_not_overflow(golden: Load, shift: float) -> None:
    """After adding 10,000, differences of logits are accurate to about 1e-3, and the loss follows them exactly."""
    g = golden("cross_entropy")
    logits = (g["logits"].astype(np.float64) + shift).astype(np.float32)
    exact = logits[:, :V].astype(np.float64) - shift
    rows = np.arange(7)
    loss = np.log(np.exp(exact).sum(1)) - exact[rows, g["targets"]]
    np.testing.assert_allclose(run(logits, g["targets"], 0, 7)[1], loss, rtol=2e-6, atol=2e-3)


def test_a_certain_answer() -> None:
    logits, targets = np.full((1, 128), -1e9, np.float32), np.array([3], np.int32)
    logits[0, 3] = 0
    dlogits, loss = run(logits, targets, 0, 1)
    assert loss[0] == 0
    assert not dlogits.any()
    _, loss = run(logits, np.array([4], np.int32), 0, 1)
    assert loss[0] == np.float32(1e9)


@pytest.mark.parametrize("column", [0, 1, 20, 49])
def test_nan_reaches_its_rows_loss(golden: Load, column: int) -> None:
    g = golden("cross_entropy")
    logits = g["logits"].copy()
    logits[3, column] = np.nan
    dlogits, loss = run(logits, g["targets"], 0, 7)
    assert np.isnan(loss[3])
    assert np.isfinite(np.delete(loss, 3)).all()
    assert np.isfinite(np.delete(dlogits, 3, axis=0)).all()


@pytest.mark.parametrize("micros", [1, 3])
def test_logits_in_bfloat16(golden: Load, micros: int) -> None:
    """The loss and gradient of the same logits as float32; the gradient rounded to bfloat16, to 2**-8 of its value."""
    g = golden("cross_entropy")
    halves = g["logits"].view(np.uint16)[:, 1::2].copy()  # truncated
    wanted = (halves.astype(np.uint32) << 16).view(np.float32)
    loss, got_loss, before = np.empty(7, np.float32), np.full(7, -7, np.float32), halves.copy()
    cross_entropy(wanted, loss, g["targets"], V, micros, 0, 7)
    cross_entropy_of_halves(halves, got_loss, np.empty(V, np.float32), g["targets"], V, micros, 2, 6)
    np.testing.assert_allclose(got_loss[2:6], loss[2:6], **CLOSE)
    got = (halves.astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_allclose(got[2:6], wanted[2:6], rtol=2**-8, atol=1e-9)
    assert not got[2:6, V:].any()
    assert (got_loss[[0, 1, 6]] == -7).all()
    np.testing.assert_array_equal(halves[[0, 1, 6]], before[[0, 1, 6]])


def test_nan_reaches_the_loss_of_logits_in_bfloat16(golden: Load) -> None:
    g = golden("cross_entropy")
    halves, loss = g["logits"].view(np.uint16)[:, 1::2].copy(), np.empty(7, np.float32)
    halves[3, 20] = 0x7FC0
    cross_entropy_of_halves(halves, loss, np.empty(V, np.float32), g["targets"], V, 1, 0, 7)
    gradient = (halves.astype(np.uint32) << 16).view(np.float32)
    assert np.isnan(loss[3])
    assert np.isnan(gradient[3, :V]).all()
    assert np.isfinite(np.delete(loss, 3)).all()
    assert np.isfinite(np.delete(gradient, 3, axis=0)).all()


def test_mean_loss_is_summed_in_float64_and_set_in_its_step_only() -> None:
    loss = np.concatenate([[1e8], np.full(1000, 1)]).astype(np.float32)
    losses, control = np.full(3, -7.0), np.zeros(8, np.int64)
    mean_loss(losses, control, loss, 1, 0, 1)
    assert losses.tolist() == [-7.0, (1e8 + 1000) / 1001, -7.0]
    assert not control.any()


def test_micro_batches_share_the_mean(golden: Load) -> None:
    """Two batches of the same rows have half the gradient each, and the mean loss of one."""
    g = golden("cross_entropy")
    dlogits, loss = g["logits"].copy(), np.empty(7, np.float32)
    cross_entropy(dlogits, loss, g["targets"], V, 2, 0, 7)
    np.testing.assert_allclose(loss, g["loss"], **CLOSE)
    np.testing.assert_allclose(dlogits, g["dlogits"] / 2, **CLOSE)
    losses, control = np.full(3, -7.0), np.zeros(8, np.int64)
    mean_loss(losses, control, loss, 1, 0, 2)
    assert losses[1] == pytest.approx(g["loss"].mean() / 2)
    mean_loss(losses, control, loss, 1, 1, 2)
    assert losses.tolist() == [-7.0, pytest.approx(g["loss"].mean()), -7.0]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_asks_to_stop(bad: float) -> None:
    losses, control = np.zeros(1), np.zeros(8, np.int64)
    mean_loss(losses, control, np.array([1, bad, 2], np.float32), 0, 0, 1)
    assert not math.isfinite(losses[0])
    assert control[0] == 1
