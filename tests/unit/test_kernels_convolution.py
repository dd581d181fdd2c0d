"""Convolutions against windows written out in float64, and against finite differences."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpt2core.gemm.sizes import LANES
from gpt2core.layers import windows
from gpt2core.layers.convolution import convolve, convolve_backward_input, convolve_backward_weight, fold
from gpt2core.layers.sweep import pack
from tests.support.finite_differences import gradient
from tests.support.lines import on_a_line

NONE, NO_BIAS = np.zeros((0, 0), np.float32), np.zeros(0, np.float32)


def reference(x: np.ndarray, weight: np.ndarray, stride: int) -> np.ndarray:
    """The convolution of x (N, S, S, C) with weight (OC, size, size, C), without bias."""
    size, side = weight.shape[1], x.shape[1]
    padded = np.pad(x, ((0, 0), (size // 2,) * 2, (size // 2,) * 2, (0, 0)))
    out = np.zeros((len(x), -(-side // stride), -(-side // stride), len(weight)))
    for ky in range(size):
        for kx in range(size):
            seen = padded[:, ky : ky + side : stride, kx : kx + side : stride]
            out += seen @ weight[:, ky, kx].T
    return out


def with_halo(x: np.ndarray) -> np.ndarray:
    """Images as kernels take them."""
    return np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0))).astype(np.float32).reshape(len(x), -1)


def inner(flat: np.ndarray, side: int) -> np.ndarray:
    """Images as people see them. Their halo is zero."""
    image = flat.reshape(len(flat), side + 2, side + 2, -1)
    halo = image.copy()
    halo[:, 1:-1, 1:-1] = 0
    assert not halo.any()
    return image[:, 1:-1, 1:-1]


class Case:
    """A convolution of three images, and its kernels."""

    def __init__(self, C: int, OC: int, side: int, size: int, stride: int, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.sizes = (side, C, OC, size, stride)
        self.S = -(-side // stride)
        self.x, self.dout = rng.normal(size=(3, side, side, C)), rng.normal(size=(3, self.S, self.S, OC))
        self.weight, self.bias = rng.normal(size=(OC, size, size, C)), rng.normal(size=OC).astype(np.float32)
        each = windows.Convolution("w", C, OC, side, size, stride, bias="b")
        specs = {spec.name: on_a_line(np.full(spec.shape, np.nan, np.float32))
                 for spec in windows.temporary([each], 2)}  # fmt: skip
        self.packed, self.shares, self.bias_shares = specs["packed"], specs["shares.w"], specs["shares.b"]
        self.at = windows.packed_places([each], True)["w"]
        pack(self.packed, self.flat_weight.reshape(-1), 0, *self.at, OC, C, size, stride)

    @property
    def flat_weight(self) -> np.ndarray:
        return self.weight.reshape(len(self.weight), -1).astype(np.float32)

    def forward(self, shortcut: np.ndarray = NONE, rectify: int = 0, bias: np.ndarray = NO_BIAS) -> np.ndarray:
        out = np.full((3, (self.S + 2) ** 2 * self.sizes[2]), np.nan, np.float32)
        for row0, row1 in ((0, 2), (2, 3)):
            convolve(
                out, with_halo(self.x), shortcut, bias, self.packed, self.at.at, self.sizes, rectify, row0, row1
            )
        return inner(out, self.S)

    def backward(self, past: np.ndarray = NONE, inp: np.ndarray = NONE) -> np.ndarray:
        side, C = self.sizes[:2]
        dinp = past if len(past) else np.full((3, (side + 2) ** 2 * C), np.nan, np.float32)
        for row0, row1 in ((0, 2), (2, 3)):
            convolve_backward_input(
                dinp, with_halo(self.dout), past, inp, self.packed, self.at.turned_at, self.sizes, row0, row1
            )
        return inner(dinp, side)

    def backward_weight(self) -> np.ndarray:
        return self.backward_weight_and_bias(NO_BIAS, NO_BIAS)

    def backward_weight_and_bias(self, dbias: np.ndarray, bias_shares: np.ndarray) -> np.ndarray:
        OC = self.sizes[2]
        for slot, (row0, row1) in enumerate(((0, 2), (2, 3))):
            convolve_backward_weight(
                self.shares, bias_shares, with_halo(self.dout), with_halo(self.x), self.sizes, row0, row1, slot * OC
            )
        dweight = np.full(self.flat_weight.shape, np.nan, np.float32)
        for out0, out1 in ((0, OC // 2), (OC // 2, OC)):
            fold(dweight, dbias, self.shares, bias_shares, OC, out0, out1, out0, 0)
        return dweight.reshape(self.weight.shape)

    def close(self, found: np.ndarray, expected: np.ndarray) -> None:
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5 * float(np.abs(expected).max() or 1))


CHANNELS = st.integers(1, 65)


@settings(max_examples=60, deadline=None)
@given(CHANNELS, CHANNELS, st.integers(5, 33), st.sampled_from([1, 3]), st.sampled_from([1, 2]))
@example(3, 16, 32, 3, 1)
@example(16, 32, 32, 3, 2)
@example(16, 32, 32, 1, 2)
@example(64, 64, 8, 3, 1)
@example(65, 33, 7, 3, 2)
@example(1, 1, 5, 1, 1)
def test_a_convolution_and_its_gradients(C: int, OC: int, side: int, size: int, stride: int) -> None:
    case = Case(C, OC, side, size, stride, seed=C + 100 * OC + side)
    case.close(case.forward(), reference(case.x, case.weight, stride))
    # The transpose of a linear map, by its definition: <dout, conv(x, w)> = <dx, x> = <dw, w>.
    product = float((case.dout * reference(case.x, case.weight, stride)).sum())
    norm = float(np.linalg.norm(case.dout) * np.linalg.norm(case.x) * np.linalg.norm(case.weight))
    dx, dw = case.backward(), case.backward_weight()
    assert abs(float((dx * case.x).sum()) - product) <= 1e-6 * norm
    assert abs(float((dw * case.weight).sum()) - product) <= 1e-6 * norm
    case.close(dx, transposed_input(case, stride))
    case.close(dw, transposed_weight(case, stride))


def transposed_input(case: Case, stride: int) -> np.ndarray:
    size, side = case.weight.shape[1], case.x.shape[1]
    padded = np.zeros((3, side + size - 1, side + size - 1, case.x.shape[3]))
    for ky in range(size):
        for kx in range(size):
            padded[:, ky : ky + side : stride, kx : kx + side : stride] += case.dout @ case.weight[:, ky, kx]
    cut = slice(size // 2, size // 2 + side)
    return padded[:, cut, cut]


def transposed_weight(case: Case, stride: int) -> np.ndarray:
    size, side = case.weight.shape[1], case.x.shape[1]
    padded = np.pad(case.x, ((0, 0), (size // 2,) * 2, (size // 2,) * 2, (0, 0)))
    out = np.zeros_like(case.weight)
    for ky in range(size):
        for kx in range(size):
            seen = padded[:, ky : ky + side : stride, kx : kx + side : stride]
            out[:, ky, kx] = np.einsum("nyxo,nyxc->oc", case.dout, seen)
    return out


@pytest.mark.parametrize("sizes", [(2, 3, 5, 3, 1), (3, 2, 5, 3, 2), (2, 2, 6, 3, 2), (2, 3, 5, 1, 2)])
def test_gradients_are_finite_differences(sizes: tuple[int, int, int, int, int]) -> None:
    case, stride = Case(*sizes), sizes[4]
    case.close(case.backward(), gradient(lambda x: reference(x, case.weight, stride), case.x, case.dout))
    case.close(case.backward_weight(), gradient(lambda w: reference(case.x, w, stride), case.weight, case.dout))


@pytest.mark.parametrize("sizes", [(3, 16, 9, 3, 1), (5, 37, 9, 3, 2), (20, 4, 8, 1, 2)])
def test_a_bias_is_added_before_the_relu_and_has_a_gradient(sizes: tuple[int, int, int, int, int]) -> None:
    case, stride = Case(*sizes), sizes[4]
    case.x *= 0.1  # so that the bias decides signs
    expected = reference(case.x, case.weight, stride) + case.bias
    case.close(case.forward(bias=case.bias), expected)
    case.close(case.forward(rectify=1, bias=case.bias), np.maximum(expected, 0))
    plain, dbias = case.backward_weight(), np.full_like(case.bias, np.nan)
    assert np.array_equal(case.backward_weight_and_bias(dbias, case.bias_shares), plain)
    case.close(dbias, gradient(lambda b: reference(case.x, case.weight, stride) + b, case.bias, case.dout))


@pytest.mark.parametrize("sizes", [(5, 17, 9, 3, 1), (5, 17, 9, 3, 2)])
def test_a_shortcut_and_a_relu_follow(sizes: tuple[int, int, int, int, int]) -> None:
    case, stride = Case(*sizes), sizes[4]
    shortcut = np.random.default_rng(1).normal(size=case.dout.shape)
    expected = shortcut + reference(case.x, case.weight, stride)
    case.close(case.forward(with_halo(shortcut), rectify=1), np.maximum(expected, 0))
    case.close(case.forward(with_halo(shortcut)), expected)


@pytest.mark.parametrize("sizes", [(5, 17, 9, 3, 1), (5, 17, 9, 3, 2), (20, 4, 8, 1, 2)])
def test_a_gradient_from_elsewhere_joins_before_the_inputs_relu(sizes: tuple[int, int, int, int, int]) -> None:
    case, stride = Case(*sizes), sizes[4]
    rng = np.random.default_rng(1)
    past, inp = rng.normal(size=case.x.shape), np.maximum(rng.normal(size=case.x.shape), 0)
    expected = np.where(inp > 0, past + transposed_input(case, stride), 0)
    case.close(case.backward(with_halo(past), with_halo(inp)), expected)


def test_shares_are_added_slice_by_slice() -> None:
    rng = np.random.default_rng(0)
    shares, bias_shares = rng.normal(size=(4 * 3, 5)).astype(np.float32), rng.normal(size=4 * 3).astype(np.float32)
    total, bias = (((s[0:3] + s[3:6]) + s[6:9]) + s[9:12] for s in (shares, bias_shares))
    dweight, dbias = np.ones((3, 5), np.float32), np.ones(3, np.float32)
    fold(dweight, dbias, shares, bias_shares, 3, 1, 3, 1, 0)
    assert np.array_equal(dweight[1:], total[1:])
    np.testing.assert_allclose(dbias[1:], bias[1:], rtol=1e-6)  # vectors of some processors sum in another order
    assert np.all(dweight[0] == 1)
    assert dbias[0] == 1
    fold(dweight, dbias, shares, bias_shares, 3, 0, 1, 0, 1)
    added, added_bias = np.ones(5, np.float32), np.float32(1)
    for first in range(0, 12, 3):
        added += shares[first]
        added_bias += bias_shares[first]
    assert np.array_equal(dweight[0], added)
    np.testing.assert_allclose(dbias[0], added_bias, rtol=1e-6)


def test_nan_is_not_rectified_away() -> None:
    """A diverging run must be seen."""
    case = Case(1, 1, 5, 3, 1)
    case.x[0, 2, 2, 0] = np.nan
    assert np.isnan(case.forward(rectify=1)[0, 1:4, 1:4]).all()


def test_panels_end_with_zeros() -> None:
    case = Case(3, 17, 5, 3, 1)
    panels = case.packed[: case.at.turned_at].reshape(2, 27, LANES)
    np.testing.assert_array_equal(panels[1, :, 0], case.flat_weight[16])
    assert not panels[1, :, 1:].any()
