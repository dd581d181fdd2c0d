"""The kernels of an LSTM's recurrence against finite differences of its formulae in float64, chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpt2core.layers.cell import sigmoid, tanh
from gpt2core.layers.recurrence import States, lstm_backward, lstm_backward_weight, lstm_forward
from gpt2core.layers.token_cell import lstm_of_token
from tests.support.finite_differences import draw, gradient

By = Callable[..., tuple[int, int, int, int]]
CLOSE: dict[str, Any] = {"rtol": 2e-5, "atol": 4e-6}
T, H, GROUPS = 5, 7, ((0, 2), (2, 3))  # samples of a group
B, BS = 3, 2
NONE = np.empty((0, 0), np.float32)  # the weight is not packed
CHUNKS = ((0, 3), (3, 5))
TIMES = tuple((t, t + 1) for t in range(T))


def rows_of(sample0: int, sample1: int) -> np.ndarray:
    """Rows (T, samples) of a group: time-major, group after group."""
    n = sample1 - sample0
    return sample0 * T + np.arange(T * n).reshape(T, n)


def outputs(gates: np.ndarray, weight: np.ndarray, bias: np.ndarray, first: tuple[np.ndarray, ...]) -> np.ndarray:
    """h (N, H) from what the input gives the gates (N, 4H) and from h and c before, written from the formulae."""
    out = np.empty((B * T, H))
    for group in GROUPS:
        h, c = (each[slice(*group)] if len(each) else np.zeros((group[1] - group[0], H)) for each in first)
        for rows in rows_of(*group):
            i, f, g, o = np.split(gates[rows] + h @ weight.T + bias, 4, axis=1)
            c = c / (1 + np.exp(-f)) + np.tanh(g) / (1 + np.exp(-i))
            out[rows] = h = np.tanh(c) / (1 + np.exp(-o))
    return out


@pytest.mark.parametrize(
    ("chunks", "units"), [(CHUNKS, [(0, H)]), (TIMES, [(0, 3), (3, 6), (6, H)])], ids=["whole", "blocks of units"]
)
@pytest.mark.parametrize("carried", [0, B], ids=["from 0", "carried"])
def test_a_layer_of_cells(
    by: By, carried: int, chunks: tuple[tuple[int, int], ...], units: list[tuple[int, int]]
) -> None:
    first = first_h, first_cell = draw(carried, H), draw(carried, H)
    gates, weight, bias, dh = draw(B * T, 4 * H), 0.5 * draw(4 * H, H), draw(4 * H), draw(B * T, H)
    inside = [(group, chunk, int(rows_of(*group)[chunk[0], 0])) for group in GROUPS for chunk in chunks]
    h, cell, kept = np.full_like(dh, np.nan), np.full_like(dh, np.nan), gates.copy()
    for group, chunk, row in inside:
        for block in units:
            tile = (*group, *chunk, row), (*block, 0, 0)
            lstm_forward(h, cell, kept, h, cell, States(*first), weight, NONE, bias, by(), *tile)
    np.testing.assert_allclose(h, outputs(gates.astype(np.float64), weight, bias, first), **CLOSE)

    dgates, whole, dcell = kept.copy(), dh.copy(), np.full((B, H), np.nan, np.float32)
    for group, chunk, row in reversed(inside):
        for block in units:
            lstm_backward(dgates, whole, dcell, dgates, cell, first_cell, weight, NONE, by(), T,
                          (*group, *chunk, row), (*block, 0))  # fmt: skip
    np.testing.assert_allclose(dgates, gradient(lambda x: outputs(x, weight, bias, first), gates, dh), **CLOSE)

    expected = gradient(lambda w: outputs(gates.astype(np.float64), w, bias, first), weight, dh)
    of_bias = gradient(lambda b: outputs(gates.astype(np.float64), weight, b, first), bias, dh)
    dweight, dbias = np.full_like(weight, np.nan), np.full_like(bias, np.nan)
    for out0, out1 in ((0, 11), (11, 4 * H)):
        lstm_backward_weight(dweight, dbias, dgates, h, first_h, by(), T, BS, (out0, out1, out0), 0, 1)
    np.testing.assert_allclose(dweight, expected, **CLOSE)
    np.testing.assert_allclose(dbias, of_bias, **CLOSE)
    lstm_backward_weight(dweight, dbias, dgates, h, first_h, by(), T, BS, (0, 4 * H, 0), 1, 0)
    np.testing.assert_allclose(dweight, 2 * expected, rtol=2e-5, atol=8e-6)
    np.testing.assert_allclose(dbias, 2 * of_bias, rtol=2e-5, atol=8e-6)


def test_without_a_second_time_the_recurrent_weight_has_no_gradient(by: By) -> None:
    dweight, dbias = np.full((4 * H, H), np.nan, np.float32), np.full(4 * H, np.nan, np.float32)
    dgates = draw(B, 4 * H)
    lstm_backward_weight(dweight, dbias, dgates, draw(B, H), draw(0, H), by(), 1, BS, (0, 4 * H, 0), 0, 0)
    assert not dweight.any()
    np.testing.assert_allclose(dbias, dgates.sum(0), rtol=1e-5)


def test_the_gates_functions() -> None:
    for x in (-200.0, -50.0, -1.0, -1e-3, 0.0, 0.3, 4.0, 90.0, 200.0):
        assert abs(sigmoid(np.float32(x)) - 1 / (1 + np.exp(-x))) <= 2e-7
        assert abs(tanh(np.float32(x)) - np.tanh(x)) <= 2e-7
    assert np.isnan(sigmoid(np.float32(np.nan)))
    assert np.isnan(tanh(np.float32(np.nan)))


def test_cells_of_one_token(by: By) -> None:
    """Those of a chunk of one time, also from weights in bfloat16."""
    first = first_h, first_cell = draw(1, H), draw(1, H)
    gates, weight, bias = draw(1, 4 * H), draw(4 * H, H), draw(4 * H)
    bits = weight.view(np.uint16)[..., 1::2].copy()
    for given, whole in ((weight, weight), (bits, (bits.astype(np.uint32) << 16).view(np.float32))):
        h, cell, kept = np.full((1, H), np.nan, np.float32), np.full((1, H), np.nan, np.float32), gates.copy()
        expected, expected_cell, expected_gates = h.copy(), cell.copy(), gates.copy()
        for units in ((0, 3), (3, H)):
            lstm_of_token(h, cell, kept, first_h, first_cell, given, bias, *units)
        lstm_forward(expected, expected_cell, expected_gates, expected, expected_cell, States(*first), whole, NONE,
                     bias, by(), (0, 1, 0, 1, 0), (0, H, 0, 0))  # fmt: skip
        np.testing.assert_allclose(h, expected, **CLOSE)
        np.testing.assert_allclose(cell, expected_cell, **CLOSE)
        np.testing.assert_allclose(kept, expected_gates, **CLOSE)
