"""Attention on slices against golden values, for every way of slicing: sums over 5 tokens and 8 channels, to 5e-6."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpt2core.gemm import libraries as gemm
from gpt2core.gemm.multiply import new_scratch
from gpt2core.layers.attention import BLOCK, attention_backward, attention_forward

Load = Callable[[str], dict[str, np.ndarray]]
By = Callable[..., tuple[int, int, int, int]]
CLOSE: dict[str, Any] = {"rtol": 5e-6, "atol": 5e-6}
NH = 3
SLICINGS = [(1, 1), (1, 2), (1, 5), (2, 1), (2, 2), (2, 3), (2, 4), (2, 5)]


def tiles_of(B: int, T: int, BS: int, TS: int) -> list[tuple[int, int, int, int]]:
    """(first, last, time0, time1) of every slice, in the order of their rows."""
    return [
        (first, min(first + BS, B), time0, min(time0 + TS, T)) for first in range(0, B, BS) for time0 in range(0, T, TS)
    ]


def rows_of(B: int, T: int, BS: int, TS: int) -> list[int]:
    """The (sequence, token) of each row, as b*T + t: slice by slice, and by sequence within a slice."""
    return [
        b * T + t
        for first, last, time0, time1 in tiles_of(B, T, BS, TS)
        for b in range(first, last)
        for t in range(time0, time1)
    ]


class Attention:
    """One problem laid out for a slicing, run tile by tile; results come back as (B, T, ...)."""

    def __init__(self, qkv: np.ndarray, heads: int, by: By, BS: int, TS: int) -> None:
        self.B, self.T, width = qkv.shape
        self.order = rows_of(self.B, self.T, BS, TS)
        self.tiles, self.TS, self.by = tiles_of(self.B, self.T, BS, TS), TS, by()
        groups = [(first, min(first + BS, self.B)) for first in range(0, self.B, BS)]
        self.heads = [(*group, head, head + 1) for group in groups for head in range(heads)]
        self.qkv = np.ascontiguousarray(qkv.reshape(-1, width)[self.order])
        self.out = np.full((self.B * self.T, width // 3), np.nan, np.float32)
        self.lse = np.full((self.B * self.T, heads), np.nan, np.float32)
        self.dqkv = np.full_like(self.qkv, np.nan)
        self.strips = np.full((2, (BLOCK + 1) * self.T), np.nan, np.float32)

    def laid_out(self, rows: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(rows.reshape(self.B * self.T, -1)[self.order])

    def back(self, rows: np.ndarray) -> np.ndarray:
        out = np.empty_like(rows)
        out[self.order] = rows
        return out.reshape(self.B, self.T, -1)

    def forward(self, tile: tuple[int, int, int, int]) -> None:
        attention_forward(self.out, self.lse, self.qkv, self.by, self.strips, *tile, self.T, self.TS)

    def backward(self, tile: tuple[int, int, int, int], dout: np.ndarray) -> None:
        """A tile (first, last, head0, head1): some heads of some sequences."""
        attention_backward(self.dqkv, dout, self.qkv, self.out, self.lse, self.by, self.strips, tile, self.T, self.TS)


@pytest.mark.parametrize(("BS", "TS"), SLICINGS)
def test_forward_and_backward_in_any_order_of_tiles(golden: Load, by: By, BS: int, TS: int) -> None:
    g = golden("attention")
    run = Attention(g["qkv"], NH, by, BS, TS)
    for tile in reversed(run.tiles):
        run.forward(tile)
    np.testing.assert_allclose(run.back(run.out), g["out"], **CLOSE)
    for tile in reversed(run.heads):
        run.backward(tile, run.laid_out(g["dout"]))
    np.testing.assert_allclose(run.back(run.dqkv), g["dqkv"], **CLOSE)


@pytest.mark.parametrize(("BS", "TS"), [(1, 2), (2, 2)])
def test_a_tile_writes_its_own_rows_only_and_backward_its_own_heads(golden: Load, by: By, BS: int, TS: int) -> None:
    g = golden("attention")
    run = Attention(g["qkv"], NH, by, BS, TS)
    row = 0
    for tile in run.tiles:
        run.forward(tile)
        row += (tile[1] - tile[0]) * (tile[3] - tile[2])
        for array in (run.out, run.lse):
            assert np.isfinite(array[:row]).all()
            assert np.isnan(array[row:]).all()
    written = np.zeros((run.B, run.T, 3, NH, run.out.shape[1] // NH), bool)
    for tile in run.heads:
        run.backward(tile, run.laid_out(g["dout"]))
        written[tile[0] : tile[1], :, :, tile[2]] = True
        assert (np.isfinite(run.back(run.dqkv)) == written.reshape(run.B, run.T, -1)).all()
    assert written.all()


def test_later_tokens_do_not_matter(golden: Load, by: By) -> None:
    g = golden("attention")
    qkv = g["qkv"].copy()
    qkv[:, 3:] = np.nan
    run = Attention(qkv, NH, by, 2, 3)
    for tile in run.tiles:
        run.forward(tile)
    np.testing.assert_allclose(run.back(run.out)[:, :3], g["out"][:, :3], **CLOSE)


def exact_attention(qkv: np.ndarray, heads: int) -> np.ndarray:
    """In float64, with the whole T x T matrix."""
    B, T, width = qkv.shape
    hs = width // 3 // heads
    q, k, v = qkv.astype(np.float64).reshape(B, T, 3, heads, hs).transpose(2, 0, 3, 1, 4)
    scores = np.where(np.tri(T, dtype=bool), q @ k.transpose(0, 1, 3, 2) / np.sqrt(hs), -np.inf)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    out: np.ndarray = (shares / shares.sum(-1, keepdims=True)) @ v
    return out.transpose(0, 2, 1, 3).reshape(B, T, width // 3)


@pytest.mark.parametrize(("T", "TS"), [(64, 64), (65, 65), (130, 130), (130, 50), (200, 70)])
def test_longer_than_one_block_of_queries(by: By, T: int, TS: int) -> None:
    """To 2e-5, because the sums are longer here. The slicing does not change gradients by more either."""
    rng = np.random.default_rng(T)
    qkv = rng.standard_normal((2, T, 3 * 16), dtype=np.float32)
    dout = rng.standard_normal((2, T, 16), dtype=np.float32)
    sliced, whole = Attention(qkv, 2, by, 2, TS), Attention(qkv, 2, by, 1, T)
    for run in (sliced, whole):
        for tile in run.tiles:
            run.forward(tile)
        np.testing.assert_allclose(run.back(run.out), exact_attention(qkv, 2), atol=2e-5)
        for tile in run.heads:
            run.backward(tile, run.laid_out(dout))
    np.testing.assert_allclose(sliced.back(sliced.dqkv), whole.back(whole.dqkv), atol=2e-5)


def test_large_scores_do_not_overflow(golden: Load, by: By) -> None:
    qkv = golden("attention")["qkv"] * np.float32(30)
    run = Attention(qkv, NH, by, 1, 5)
    for tile in run.tiles:
        run.forward(tile)
    np.testing.assert_allclose(run.back(run.out), exact_attention(qkv, NH), rtol=1e-3, atol=1e-2)


def test_nan_in_a_query_stays_with_its_head_and_row(golden: Load, by: By) -> None:
    g = golden("attention")
    qkv = g["qkv"].copy()
    qkv[1, 2, 8] = np.nan  # the second head's query of one token
    run = Attention(qkv, NH, by, 2, 2)
    for tile in run.tiles:
        run.forward(tile)
    out = run.back(run.out)
    assert np.isnan(out[1, 2, 8:16]).all()
    assert np.isnan(out).sum() == 8


def test_operands_rounded_to_bfloat16(golden: Load) -> None:
    """The result is close to the exact one, but differs from that of float32 operands."""
    g = golden("attention")
    words, scratch = new_scratch()
    results = []
    for precision in ("fp32", "bf16"):
        run = Attention(g["qkv"], NH, lambda precision=precision: gemm.ours(precision).by(0, scratch), 2, 2)
        for tile in run.tiles:
            run.forward(tile)
        for tile in run.heads:
            run.backward(tile, run.laid_out(g["dout"]))
        results.append((run.back(run.out), run.back(run.dqkv)))
    for exact, plain, rounded in zip((g["out"], g["dqkv"]), *results, strict=True):
        scale = np.abs(exact).max()
        assert np.abs(rounded - exact).max() < 2**-7 * scale
        assert np.abs(rounded - exact).max() > 100 * np.abs(plain - exact).max()
    del words


def test_backward_of_an_output_in_bfloat16(golden: Load) -> None:
    """The bits of the same output as float32."""
    g, (words, scratch) = golden("attention"), new_scratch()
    run = Attention(g["qkv"], NH, lambda: gemm.ours().by(0, scratch), 1, 2)
    for tile in run.tiles:
        run.forward(tile)
    halves, dout = run.out.view(np.uint16)[:, 1::2].copy(), run.laid_out(g["dout"])
    run.out = (halves.astype(np.uint32) << 16).view(np.float32)
    got = np.full_like(run.dqkv, np.nan)
    for tile in run.heads:
        run.backward(tile, dout)
        attention_backward(got, dout, run.qkv, halves, run.lse, run.by, run.strips, tile, run.T, run.TS)
    assert got.tobytes() == run.dqkv.tobytes()
    del words
