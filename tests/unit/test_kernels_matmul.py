"""Linear layers against golden values, by our own product and libraries: sums of 24 products of order 1, to 1e-5."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpt2core.gemm import libraries as gemm
from gpt2core.gemm import measuring
from gpt2core.gemm.multiply import new_scratch
from gpt2core.layers.columns import matmul_forward_columns
from gpt2core.layers.linear import (
    matmul_backward_input,
    matmul_backward_weight,
    matmul_forward,
    matmul_forward_to_halves,
)
from gpt2core.layers.panels import weight_pack_in_place
from gpt2core.run.prepare import plan
from gpt2core.spec.config import TrainConfig
from gpt2core.step.signature import signature

Load = Callable[[str], dict[str, np.ndarray]]
By = Callable[..., tuple[int, int, int, int]]
CLOSE: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-5}
NONE = np.empty(0, np.float32)


@pytest.mark.parametrize("piece", [40, 16, 1])
@pytest.mark.parametrize("with_bias", [True, False])
def test_forward(golden: Load, by: By, with_bias: bool, piece: int) -> None:
    g = golden("matmul")
    out = np.full_like(g["dout"], np.nan)
    matmul_forward(out, g["inp"], g["weight"], g["bias"] if with_bias else NONE, by(piece), 0, 0, 7)
    np.testing.assert_allclose(out, g["out"] - (0 if with_bias else g["bias"]), **CLOSE)


def test_forward_leaves_other_rows_alone(golden: Load, by: By) -> None:
    g = golden("matmul")
    out = np.full_like(g["dout"], -7)
    matmul_forward(out, g["inp"], g["weight"], g["bias"], by(40), 0, 1, 4)
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
        matmul_backward_weight(dweight, dbias, g["dout"], g["inp"], by(piece), out0, out1, out0, 0, 0)
        assert np.isnan(dweight[out1:]).all()
        assert np.isnan(dbias[out1:]).all()
    np.testing.assert_allclose(dweight, g["dweight"], **CLOSE)
    np.testing.assert_allclose(dbias, g["dbias"], **CLOSE)
    matmul_backward_weight(dweight, dbias, g["dout"], g["inp"], by(piece), 0, 40, 0, 1, 1)
    np.testing.assert_allclose(dweight, 2 * g["dweight"], **CLOSE)
    np.testing.assert_allclose(dbias, 2 * g["dbias"], **CLOSE)


def test_backward_weight_without_bias(golden: Load, by: By) -> None:
    g = golden("matmul")
    dweight = np.full_like(g["weight"], np.nan)
    matmul_backward_weight(dweight, NONE, g["dout"], g["inp"], by(24), 0, 40, 0, 0, 0)
    np.testing.assert_allclose(dweight, g["dweight"], **CLOSE)


def test_nan_is_not_lost(golden: Load, by: By) -> None:
    g = golden("matmul")
    inp, out = g["inp"].copy(), np.zeros_like(g["dout"])
    inp[3, 5] = np.nan
    matmul_forward(out, inp, g["weight"], g["bias"], by(40), 0, 0, 7)
    assert np.isnan(out[3]).all()
    assert np.isfinite(np.delete(out, 3, axis=0)).all()


# --- bfloat16 in memory: the bits of float32 with the same values


def halves(values: np.ndarray) -> np.ndarray:
    """The upper halves: truncated to bfloat16."""
    return values.astype(np.float32).view(np.uint16)[..., 1::2].copy()


def floats(values: np.ndarray) -> np.ndarray:
    return (values.astype(np.uint32) << 16).view(np.float32)


def nearest(values: np.ndarray) -> np.ndarray:
    return np.rint(values.view(np.uint32).astype(np.float64) / 65536).astype(np.uint16)


def test_inputs_and_gradients_in_bfloat16(golden: Load) -> None:
    g = golden("matmul")
    words, scratch = new_scratch()
    by = gemm.ours("bf16").by(0, scratch)
    inp, dout = halves(g["inp"]), halves(g["dout"])
    out, same_out = np.full((2, *g["dout"].shape), -7, np.float32)
    matmul_forward(out, inp, g["weight"], g["bias"], by, 0, 1, 6)
    matmul_forward(same_out, floats(inp), g["weight"], g["bias"], by, 0, 1, 6)
    assert out.tobytes() == same_out.tobytes()
    dinp, same_dinp = np.full((2, *g["inp"].shape), -7, np.float32)
    matmul_backward_input(dinp, dout, g["weight"], by, 1, 6)
    matmul_backward_input(same_dinp, floats(dout), g["weight"], by, 1, 6)
    assert dinp.tobytes() == same_dinp.tobytes()
    for given in ((dout, floats(inp)), (floats(dout), inp)):
        dweight, same_dweight = np.full((2, *g["weight"].shape), np.nan, np.float32)
        dbias, same_dbias = np.full((2, len(g["bias"])), np.nan, np.float32)
        matmul_backward_weight(dweight, dbias, *given, by, 13, 40, 13, 0, 0)
        matmul_backward_weight(same_dweight, same_dbias, floats(dout), floats(inp), by, 13, 40, 13, 0, 0)
        assert dweight.tobytes() == same_dweight.tobytes()
        assert dbias.tobytes() == same_dbias.tobytes()
    del words


def test_weights_in_bfloat16(golden: Load) -> None:
    g = golden("matmul")
    words, scratch = new_scratch()
    by = gemm.ours("bf16").by(0, scratch)
    weight, inp = halves(g["weight"]), halves(g["inp"])
    for given in (g["inp"], inp):
        out, same = np.full((2, *g["dout"].shape), -7, np.float32)
        matmul_forward(out, given, weight, g["bias"], by, 0, 1, 6)
        matmul_forward(same, given, floats(weight), g["bias"], by, 0, 1, 6)
        assert out.tobytes() == same.tobytes()
    rounded, part = np.empty((3, g["inp"].shape[1]), np.uint16), np.empty(3 * 7, np.float32)
    half, same_half = np.full((2, *g["dout"].shape), 7, np.uint16)
    matmul_forward_to_halves(half, g["inp"], weight, rounded, part, by, 3, 7, 1, 6)
    matmul_forward_to_halves(same_half, g["inp"], floats(weight), rounded, part, by, 3, 7, 1, 6)
    np.testing.assert_array_equal(half, same_half)
    del words


@pytest.mark.parametrize("rows", [1, 4, 7])
@pytest.mark.parametrize("with_bias", [True, False])
def test_few_rows_by_ranges_of_outputs(golden: Load, with_bias: bool, rows: int) -> None:
    g = golden("matmul")
    bias = g["bias"] if with_bias else NONE
    expected = g["out"][:rows] - (0 if with_bias else g["bias"])
    out = np.full((rows, 40), -7, np.float32)
    matmul_forward_columns(out, g["inp"][:rows], g["weight"], bias, 0, 13)
    assert (out[:, 13:] == -7).all()
    matmul_forward_columns(out, g["inp"][:rows], g["weight"], bias, 13, 40)
    np.testing.assert_allclose(out, expected, **CLOSE)
    half, same = np.full((2, *out.shape), np.nan, np.float32)
    matmul_forward_columns(half, g["inp"][:rows], halves(g["weight"]), bias, 0, 40)
    matmul_forward_columns(same, g["inp"][:rows], floats(halves(g["weight"])), bias, 0, 40)
    np.testing.assert_allclose(half, same, **CLOSE)


@pytest.mark.parametrize(("rows", "columns"), [(7, 40), (2, 16), (3, 7)])
def test_an_output_in_bfloat16_is_rounded(golden: Load, rows: int, columns: int) -> None:
    """In parts of so many rows and columns: the bits of the whole product, rounded to nearest."""
    g = golden("matmul")
    words, scratch = new_scratch()
    by = gemm.ours("bf16").by(0, scratch)
    whole = np.empty_like(g["dout"])
    matmul_forward(whole, g["inp"], g["weight"], NONE, by, 0, 0, 7)
    out = np.full(whole.shape, 7, np.uint16)
    rounded, part = np.full((rows, g["inp"].shape[1]), 0x7FC0, np.uint16), np.empty(rows * columns, np.float32)
    matmul_forward_to_halves(out, g["inp"], g["weight"], rounded, part, by, rows, columns, 1, 7)
    np.testing.assert_array_equal(out[1:], nearest(whole)[1:])
    assert (out[0] == 7).all()
    del words


# --- who expects C in a cache


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(("changes", "fetches"), [
    ({"fusion": "all"}, 0), ({"fusion": "rows"}, 1), ({"grad_clip": 1.0}, 1), ({"grad_accum": 2}, 1),
])  # fmt: skip
def test_a_weight_gradient_is_fetched_before_it_is_written_unless_it_stays_in_the_cache(changes, fetches, precision):
    given = {"model": "tiny", "batch": 2, "seq": 32, "threads": 1, "precision": precision, **changes}
    at = list(signature(matmul_backward_weight).operands).index("fetches")
    calls = (call for op in plan(TrainConfig.from_dict(given)).program.ops for call in op.calls)
    names = ("fc_dweight", "fc_projection_dweight", "logits_dweight")
    found = {call.operands[at] for call in calls if call.name in names}
    assert found == {fetches}


@pytest.mark.parametrize("library", ["own", "auto"])
def test_a_weight_packed_in_its_place_gives_the_same_bits(library: str) -> None:
    """96 of 100 rows are whole panels. A library multiplies the rows as they lie, so they stay."""
    rng = np.random.default_rng(3)
    inp, weight, bias = (rng.standard_normal(shape, np.float32) for shape in ((7, 800), (100, 800), (100,)))
    words, scratch = new_scratch()
    by = (gemm.ours() if library == "own" else gemm.blas(library)).by(0, scratch)
    plain, out = np.empty((2, 7, 100), np.float32)
    matmul_forward(plain, inp, weight, bias, by, 0, 0, 7)
    packed = measuring.matrix(weight.size).reshape(weight.shape)  # on a page, as in a run
    packed[:] = weight
    for rows in ((0, 48), (48, 96)):
        weight_pack_in_place(packed, by, *rows)
    matmul_forward(out, inp, packed, bias, by, 96, 0, 7)
    assert np.array_equal(out, plain)
    assert np.array_equal(packed, weight) == (library != "own")
    assert np.array_equal(packed[96:], weight[96:])
    assert sorted(packed[:48].ravel()) == sorted(weight[:48].ravel())
    del words
