"""The embeddings against golden values; sums of at most 10 float32 in the same order, so to 1e-6 relative."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpt2core.layers.embedding import encoder_backward, encoder_forward

Load = Callable[[str], dict[str, np.ndarray]]
CLOSE: dict[str, Any] = {"rtol": 1e-6, "atol": 1e-6}


def test_forward(golden: Load) -> None:
    g = golden("encoder")
    out = np.full_like(g["dout"], np.nan)
    encoder_forward(out, g["tokens"], g["positions"], g["wte"], g["wpe"], 0, len(out))
    np.testing.assert_allclose(out, g["out"], **CLOSE)


def test_forward_leaves_other_rows_alone(golden: Load) -> None:
    g = golden("encoder")
    out = np.full_like(g["dout"], -7)
    encoder_forward(out, g["tokens"], g["positions"], g["wte"], g["wpe"], 3, 6)
    np.testing.assert_allclose(out[3:6], g["out"][3:6], **CLOSE)
    assert (np.delete(out, range(3, 6), axis=0) == -7).all()


def test_backward_wte_accumulates_in_its_range_of_the_vocabulary(golden: Load) -> None:
    g = golden("encoder")
    assert len(set(g["tokens"])) < len(g["tokens"]), "no token comes twice"
    dwte = np.ones_like(g["wte"])
    for first, last in ((0, 5), (5, 9), (9, 128)):
        before = dwte.copy()
        encoder_backward(dwte, g["dout"], g["tokens"], first, last, first, 1, 0)
        others = [v for v in range(128) if not first <= v < last]
        np.testing.assert_array_equal(dwte[others], before[others])
    np.testing.assert_allclose(dwte, 1 + g["dwte"], **CLOSE)


def test_backward_wpe_overwrites_its_range_of_positions(golden: Load) -> None:
    g = golden("encoder")
    dwpe = np.full_like(g["wpe"], np.nan)
    encoder_backward(dwpe, g["dout"], g["positions"], 2, 4, 2, 0, 0)
    assert np.isnan(np.delete(dwpe, range(2, 4), axis=0)).all()
    for first, last in ((0, 3), (3, 16)):
        encoder_backward(dwpe, g["dout"], g["positions"], first, last, first, 0, 0)
    np.testing.assert_allclose(dwpe, g["dwpe"], **CLOSE)
    assert not dwpe[5:].any()
    encoder_backward(dwpe, g["dout"], g["positions"], 0, 16, 0, 1, 0)
    np.testing.assert_allclose(dwpe, 2 * g["dwpe"], **CLOSE)
