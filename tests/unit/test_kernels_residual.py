"""The residual connection against golden values: one float32 addition."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gpt2core.layers.residual import residual_forward

Load = Callable[[str], dict[str, np.ndarray]]


def test_forward_on_its_rows(golden: Load) -> None:
    g = golden("residual")
    out = np.full_like(g["inp"], -7)
    residual_forward(out, g["inp"], g["branch"], 1, 7)
    np.testing.assert_allclose(out[1:], g["out"][1:], rtol=1e-6, atol=1e-6)
    assert (out[0] == -7).all()


def test_forward_may_work_in_place(golden: Load) -> None:
    g = golden("residual")
    out = g["inp"].copy()
    residual_forward(out, out, g["branch"], 0, 7)
    np.testing.assert_allclose(out, g["out"], rtol=1e-6, atol=1e-6)
