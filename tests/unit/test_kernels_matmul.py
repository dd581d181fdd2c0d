"""Linear layers against golden values, by our own product and libraries: sums of 24 products of order 1, to 1e-5."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from gpt2core.layers.linear import matmul_backward_input, matmul_backward_weight, matmul_forward

Load = Callable[[str], dict[str, np.ndarray]]
By = Callable[..., tuple[int, int, int, int]]
CLOSE = {"rtol": 1e-5, "atol": 1e-5}
NONE = np.empty(0, np.float32)


@pytest.mark.parametrize("piece", [40, 16, 1])
@pytest.mark.parametrize("with_bias", [True, False])
def test_forward(golden: Load, by: By, with_bias: bool, piece: int) -> None:
    g = golden("matmul")
    out = np.full_like(g["dout"], np.nan)
    matmul_forward(out, g["inp"], g["weight"], g["bias"] if with_bias else NONE, by(piece), 0, 7)
    np.testing.assert_allclose(out, g["out"] - (0 if with_bias else g["bias"]), **CLOSE)


def test_forward_leaves_other_rows_alone(golden: Load, by: By) -> None:
    g = golden("matmul")
    out = np.full_like(g["dout"], -7)
    matmul_forward(out, g["inp"], g["weight"], g["bias"], by(40), 1, 4)
    np.testing.assert_allclose(out[1:4], g["out"][1:4], **CLOSE)
    assert (np.delete(out, range(1, 4), axis=0) == -7).all()


@pytest.mark.parametrize("piece", [24, 5])
def test_backward_input(golden: Load, by: By, piece: int) -> None:
    g = golden("matmul")
    dinp = np.full_like(g["inp"], -7)
    matmul_backward_input(dinp, g["dout"], g["weight"], by(piece), 2, 7)
    assert (dinp[:2] == -7).all()
    matmul_backward_input(dinp, g["dout"], g["weight"], by(piece), 0, 2)
    np.testing.assert_allclose(dinp, g["dinp"], **CLOSE)


@pytest.mark.parametrize("piece", [24, 7])
def test_backward_weight_by_ranges_of_outputs(golden: Load, by: By, piece: int) -> None:
    g = golden("matmul")
    dweight, dbias = np.full_like(g["weight"], np.nan), np.full_like(g["bias"], np.nan)
    for out0, out1 in ((0, 13), (13, 40)):
        matmul_backward_weight(dweight, dbias, g["dout"], g["inp"], by(piece), out0, out1, out0, 0)
        assert np.isnan(dweight[out1:]).all()
        assert np.isnan(dbias[out1:]).all()
    np.testing.assert_allclose(dweight, g["dweight"], **CLOSE)
    np.testing.assert_allclose(dbias, g["dbias"], **CLOSE)
    matmul_backward_weight(dweight, dbias, g["dout"], g["inp"], by(piece), 0, 40, 0, 1)
    np.testing.assert_allclose(dweight, 2 * g["dweight"], **CLOSE)
    np.testing.assert_allclose(dbias, 2 * g["dbias"], **CLOSE)


def test_backward_weight_without_bias(golden: Load, by: By) -> None:
    g = golden("matmul")
    dweight = np.full_like(g["weight"], np.nan)
    matmul_backward_weight(dweight, NONE, g["dout"], g["inp"], by(24), 0, 40, 0, 0)
    np.testing.assert_allclose(dweight, g["dweight"], **CLOSE)


def test_nan_is_not_lost(golden: Load, by: By) -> None:
    g = golden("matmul")
    inp, out = g["inp"].copy(), np.zeros_like(g["dout"])
    inp[3, 5] = np.nan
    matmul_forward(out, inp, g["weight"], g["bias"], by(40), 0, 7)
    assert np.isnan(out[3]).all()
    assert np.isfinite(np.delete(out, 3, axis=0)).all()
