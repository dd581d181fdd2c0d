"""Rounding of rows to bfloat16."""

from __future__ import annotations

import numpy as np

from gpt2core.layers.rounding import round_rows


def test_rows_are_rounded_to_nearest() -> None:
    inp = np.random.default_rng(1).standard_normal((5, 37), dtype=np.float32)
    inp[1, :4] = 1 + 2.0**-8, 1 + 3 * 2.0**-8, np.inf, np.nan  # two ties
    out = np.full(inp.shape, 7, np.uint16)
    round_rows(out, inp, 1, 4)
    assert out[1, :3].tolist() == [0x3F80, 0x3F82, 0x7F80]
    assert np.isnan((out[1, 3:4].astype(np.uint32) << 16).view(np.float32)).all()
    exact = np.rint(inp[1:4].view(np.uint32).astype(np.float64) / 65536)
    np.testing.assert_array_equal(np.delete(out[1:4].ravel(), 3), np.delete(exact.ravel(), 3))
    assert (out[[0, 4]] == 7).all()
