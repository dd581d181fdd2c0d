"""The residual connection against golden values: one float32 addition."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gpt2core.layers.residual import residual_forward

Load = Callable[[str], dict[str, np.ndarray]]


def test_forward_on_its_rows(golden: Load) -> None:
    g = golden("residual")
    out = g["branch"].copy()
    residual_forward(out, g["inp"], 1, 7)
    np.testing.assert_allclose(out[1:], g["out"][1:], rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(out[0], g["branch"][0])
