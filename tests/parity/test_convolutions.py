"""Convolutions and their gradients against torch.nn.functional.conv2d in float64, over random shapes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch.nn import functional

from gpt2core.layers import windows
from gpt2core.layers.convolution import convolve, convolve_backward_input, convolve_backward_weight, fold
from gpt2core.layers.sweep import pack
from tests.support.lines import on_a_line

pytestmark = pytest.mark.parity

NONE, NO_BIAS = np.zeros((0, 0), np.float32), np.zeros(0, np.float32)
CHANNELS = st.integers(1, 65)
SLICES = ((0, 2), (2, 3))  # of three images: the last slice is smaller


def with_halo(x: torch.Tensor) -> np.ndarray:
    """Images of torch, channels first, as kernels take them."""
    return functional.pad(x.detach(), (1, 1, 1, 1)).permute(0, 2, 3, 1).float().reshape(len(x), -1).contiguous().numpy()


def close(flat: np.ndarray, expected: torch.Tensor) -> None:
    """Compare images as kernels write them, with their halo of zeros."""
    wanted = with_halo(expected)
    np.testing.assert_allclose(flat, wanted, rtol=2e-5, atol=2e-5 * float(np.abs(wanted).max() or 1))


@settings(max_examples=40, deadline=None)
@given(CHANNELS, CHANNELS, st.integers(5, 33), st.sampled_from([1, 3]), st.sampled_from([1, 2]), st.booleans(),
       st.booleans())  # fmt: skip
@example(3, 16, 32, 3, 1, True, True)
@example(16, 32, 32, 3, 2, True, False)
@example(16, 32, 32, 1, 2, False, False)
@example(65, 33, 7, 3, 2, True, True)
@example(1, 1, 5, 1, 1, False, True)
def test_a_convolution_is_torchs(
    C: int, OC: int, side: int, size: int, stride: int, rectify: bool, biased: bool
) -> None:
    random = torch.Generator().manual_seed(C + 100 * OC + side)
    x = torch.randn(3, C, side, side, generator=random, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(OC, C, size, size, generator=random, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(OC, generator=random, dtype=torch.float64, requires_grad=True) if biased else None
    plain = functional.conv2d(x, weight, bias, stride=stride, padding=size // 2)
    dout = torch.randn(plain.shape, generator=random, dtype=torch.float64)
    plain.backward(dout)
    assert x.grad is not None
    assert weight.grad is not None

    each = windows.Convolution("w", C, OC, side, size, stride, bias="b")
    specs = {spec.name: on_a_line(np.full(spec.shape, np.nan, np.float32))
             for spec in windows.temporary([each], len(SLICES))}  # fmt: skip
    packed, shares, place = specs["packed"], specs["shares.w"], windows.packed_places([each], True)["w"]
    bias_shares = specs["shares.b"] if biased else NO_BIAS
    its_bias = NO_BIAS if bias is None else bias.detach().float().numpy()
    flat = weight.detach().permute(0, 2, 3, 1).float().contiguous().numpy().reshape(OC, -1)
    pack(packed, flat.reshape(-1), 0, *place, OC, C, size, stride)
    sizes, images, gradient = (side, C, OC, size, stride), with_halo(x), with_halo(dout)
    out, dinp = np.full_like(gradient, np.nan), np.full_like(images, np.nan)
    for number, (row0, row1) in enumerate(SLICES):
        convolve(out, images, NONE, its_bias, packed, place.at, sizes, int(rectify), row0, row1)
        convolve_backward_input(dinp, gradient, NONE, NONE, packed, place.turned_at, sizes, row0, row1)
        convolve_backward_weight(shares, bias_shares, gradient, images, sizes, row0, row1, number * OC)
    dweight, dbias = np.full_like(flat, np.nan), np.full_like(its_bias, np.nan)
    fold(dweight, dbias, shares, bias_shares, OC, 0, OC, 0, 0)
    close(out, plain.clamp(min=0) if rectify else plain)
    close(dinp, x.grad)
    wanted = weight.grad.permute(0, 2, 3, 1).reshape(OC, -1).numpy()
    np.testing.assert_allclose(dweight, wanted, rtol=2e-5, atol=2e-5 * float(np.abs(wanted).max()))
    if bias is not None:
        assert bias.grad is not None
        np.testing.assert_allclose(dbias, bias.grad.numpy(), rtol=2e-5, atol=2e-5 * float(bias.grad.abs().max()))
