"""GELU and the exponential under it: golden values, and accuracy over the whole range of float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpt2core.compile.jit import kernel
from gpt2core.compile.vector import exp32
from gpt2core.layers.gelu import gelu_backward, gelu_forward

Load = Callable[[str], dict[str, np.ndarray]]
CLOSE: dict[str, Any] = {"rtol": 2e-6, "atol": 2e-6}
NONE = np.empty((0, 0), np.float32)  # no array


@kernel
def exponentials(out, inp):
    for i in range(len(inp)):
        out[i] = exp32(inp[i])


def exact_gelu(x: np.ndarray) -> np.ndarray:
    """In float64 and without cancellation: x times the logistic function of 2u."""
    u2 = 2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)
    return x * np.where(u2 > 0, 1, np.exp(np.minimum(u2, 0))) / (1 + np.exp(-np.abs(u2)))


def test_forward_on_its_rows(golden: Load) -> None:
    g = golden("gelu")
    out = np.full_like(g["inp"], -7)
    gelu_forward(out, NONE, g["inp"], 1, 6)
    np.testing.assert_allclose(out[1:6], g["out"][1:6], **CLOSE)
    assert (out[[0, 6]] == -7).all()


def test_backward_in_place_on_its_rows(golden: Load) -> None:
    g = golden("gelu")
    dinp, out = g["dout"].copy(), g["inp"].copy()
    gelu_backward(dinp, out, NONE, 1, 6)
    np.testing.assert_allclose(out[1:6], g["out"][1:6], **CLOSE)
    np.testing.assert_array_equal(out[[0, 6]], g["inp"][[0, 6]])
    np.testing.assert_allclose(dinp[1:6], g["dinp"][1:6], **CLOSE)
    np.testing.assert_array_equal(dinp[[0, 6]], g["dout"][[0, 6]])


def test_forward_is_accurate_everywhere() -> None:
    """To 5e-6 relative where the result is a normal number, however small: the tail does not cancel.

    From -10 down e**(2u) magnifies the rounding of u, whose size is |2u| half-ulps.
    """
    x = np.linspace(-13, 13, 40001, dtype=np.float32)
    out = np.empty((1, len(x)), np.float32)
    gelu_forward(out, NONE, x[None], 0, 1)
    exact = exact_gelu(x.astype(np.float64))
    normal = np.abs(exact) > 1e-34
    error = np.abs(out[0] - exact)[normal] / np.abs(exact)[normal]
    assert error[np.abs(x[normal]) < 4].max() < 5e-6
    assert error.max() < 5e-5
    assert np.abs(out[0] - exact)[~normal].max() < 1e-34


def test_backward_is_accurate_everywhere() -> None:
    x = np.linspace(-13, 13, 40001, dtype=np.float32)
    dinp = np.ones((1, len(x)), np.float32)
    gelu_backward(dinp, x[None].copy(), NONE, 0, 1)
    at, eps = x.astype(np.float64), 1e-5
    np.testing.assert_allclose(dinp[0], (exact_gelu(at + eps) - exact_gelu(at - eps)) / (2 * eps), rtol=0, atol=2e-6)


def halves(values: np.ndarray) -> np.ndarray:
    """The nearest bfloat16 as uint16, by float64 arithmetic on the bits; of finite values."""
    bits = values.astype(np.float32).view(np.uint32).astype(np.float64)
    return np.rint(bits / 65536).astype(np.uint16)


def floats(values: np.ndarray) -> np.ndarray:
    return (values.astype(np.uint32) << 16).view(np.float32)


def test_in_bfloat16_it_is_that_of_the_rounded_input(golden: Load) -> None:
    """Forward and backward: exactly the float32 kernels' results on the same values, rounded."""
    g = golden("gelu")
    rounded = floats(halves(g["inp"]))
    out, dinp, exact = np.empty_like(rounded), g["dout"].copy(), rounded.copy()
    gelu_forward(out, NONE, rounded, 0, 7)
    gelu_backward(dinp, exact, NONE, 0, 7)
    got, kept, gradient = np.full((3, *rounded.shape), 7, np.uint16)
    gelu_forward(got, kept, g["inp"], 1, 6)
    np.testing.assert_array_equal(kept[1:6], halves(rounded)[1:6])
    np.testing.assert_allclose(floats(got[1:6]), out[1:6], rtol=2**-8, atol=1e-30)
    assert (halves(out)[1:6] == got[1:6]).mean() > 0.99  # the two kernels may fuse products differently
    gelu_backward(gradient, kept, g["dout"], 1, 6)
    np.testing.assert_allclose(floats(kept[1:6]), exact[1:6], rtol=2**-8, atol=1e-30)
    np.testing.assert_allclose(floats(gradient[1:6]), dinp[1:6], rtol=2**-8, atol=1e-30)
    assert (halves(dinp)[1:6] == gradient[1:6]).mean() > 0.99
    for array in (got, kept, gradient):
        assert (array[[0, 6]] == 7).all()


def test_far_out_it_is_zero_or_the_identity() -> None:
    x = np.array([[-1e12, -3e4, -100, 100, 3e4, 1e12, np.inf, np.nan]], np.float32)
    out, dinp = np.empty_like(x), np.ones_like(x)
    gelu_forward(out, NONE, x, 0, 1)
    again = x.copy()
    gelu_backward(dinp, again, NONE, 0, 1)
    np.testing.assert_array_equal(again, out)
    np.testing.assert_array_equal(out[0], np.array([0, 0, 0, 100, 3e4, 1e12, np.inf, np.nan], np.float32))
    np.testing.assert_array_equal(dinp[0, :6], [0, 0, 0, 1, 1, 1])
    assert np.isnan(dinp[0, 7])


def test_exponential_is_accurate_over_its_range() -> None:
    """To 1.3e-7 relative, about a unit in the last place, and exactly 1 at 0."""
    x = np.concatenate([
        np.linspace(-87.3, 88.3, 400001), np.linspace(-1e-3, 1e-3, 20001), -np.logspace(-38, 1.9, 20001)
    ]).astype(np.float32)  # fmt: skip
    out = np.empty_like(x)
    exponentials(out, x)
    exact = np.exp(x.astype(np.float64))
    assert (np.abs(out - exact) / exact).max() < 1.3e-7
    exponentials(out[:1], np.zeros(1, np.float32))
    assert out[0] == 1


def test_exponential_beyond_its_range() -> None:
    x = np.array([-np.inf, -1e30, -104, -88, 88.5, 89, 1e30, np.inf, np.nan, -0.0], np.float32)
    out = np.empty_like(x)
    exponentials(out, x)
    np.testing.assert_array_equal(out, np.array([0, 0, 0, 0, np.inf, np.inf, np.inf, np.inf, np.nan, 1], np.float32))


def test_exponential_at_the_ends_of_its_range() -> None:
    """Subnormal, then 0, without a jump; infinite from where the exponent ends."""
    low = np.linspace(-87.8, -87.2, 20001, dtype=np.float32)
    high = np.array([88.3762, 88.3764], np.float32)
    out = np.empty_like(low)
    exponentials(out, low)
    subnormal, exact = low < -87.34, np.exp(low.astype(np.float64))
    np.testing.assert_allclose(out[low > -87.68], exact[low > -87.68], rtol=2e-7, atol=2e-45)
    assert (out[subnormal & (low > -87.68)] > 0).all()
    assert not out[low < -87.69].any()
    exponentials(out[:2], high)
    assert np.isfinite(out[0])
    assert out[1] == np.inf


@pytest.mark.parametrize("length", [1, 7, 33, 100, 768])
def test_vectors_side_by_side_have_the_bits_of_one_at_a_time(length: int) -> None:
    one_forward, one_backward = (kernel(each.py_func) for each in (gelu_forward, gelu_backward))
    inp, gradient = np.random.default_rng(length).standard_normal((2, 3, length), dtype=np.float32)
    found, due = np.empty((2, 3, length), np.float32)
    gelu_forward(found, NONE, inp, 0, 3)
    one_forward(due, NONE, inp, 0, 3)
    np.testing.assert_array_equal(found, due)
    both, both_due = ([gradient.copy(), inp.copy()] for _ in range(2))
    gelu_backward(*both, NONE, 0, 3)
    one_backward(*both_due, NONE, 0, 3)
    np.testing.assert_array_equal(both, both_due)
