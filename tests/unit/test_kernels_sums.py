"""Sums and softmax over ranks that divide a matrix: every rank gets the same bits, those of the sum in rank order."""

from __future__ import annotations

import numpy as np
import pytest

from gpt2core.layers.divided_loss import fold_cross_entropy, sums_of_exponentials
from gpt2core.layers.embedding import encoder_backward, encoder_forward, encoder_forward_of_part
from gpt2core.layers.loss import cross_entropy
from gpt2core.layers.sums import fold_rows

N, C, NO_BIAS = 5, 7, np.zeros(0, np.float32)


@pytest.fixture
def draw() -> np.random.Generator:
    return np.random.default_rng(20261129)


def others(parts: np.ndarray, rank: int) -> np.ndarray:
    """The rows of all ranks but one, rank after rank."""
    return np.ascontiguousarray(np.delete(parts, rank, axis=0).reshape(-1, parts.shape[-1]))


@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_every_rank_adds_in_rank_order(draw, ranks):
    scale = 10.0 ** draw.integers(-3, 4, size=(ranks, N, C))
    parts = (draw.standard_normal((ranks, N, C)) * scale).astype(np.float32)
    bias = draw.standard_normal(C).astype(np.float32)
    expected = parts[0].copy()
    for part in parts[1:]:
        expected += part
    assert (expected != parts[::-1].cumsum(axis=0)[-1]).any() or ranks == 2  # the order matters
    for rank in range(ranks):
        out = np.full((N, C), np.nan, np.float32)
        fold_rows(out, parts[rank], others(parts, rank), NO_BIAS, rank, 1, 4)
        np.testing.assert_array_equal(out[1:4], expected[1:4])
        assert np.isnan(out[[0, 4]]).all()
        fold_rows(out, parts[rank], others(parts, rank), bias, rank, 0, N)
        np.testing.assert_array_equal(out, expected + bias)


def as_float(logits: np.ndarray) -> np.ndarray:
    """Values of float32, or of the bits of bfloat16."""
    return logits if logits.dtype == np.float32 else (logits.astype(np.uint32) << 16).view(np.float32)


def softmax(logits: np.ndarray, ranks: int, targets: np.ndarray, V: int, micros: int) -> tuple[np.ndarray, np.ndarray]:
    """The losses that each of the ranks finds, and the gradients of all logits."""
    W = logits.shape[1] // ranks
    mine = [np.ascontiguousarray(logits[:, W * rank : W * (rank + 1)]) for rank in range(ranks)]
    own, losses = np.full((ranks, N, 3), np.nan, np.float32), np.full((ranks, N), np.nan, np.float32)
    tokens = [min(W, V - W * rank) for rank in range(ranks)]
    for rank in range(ranks):
        sums_of_exponentials(mine[rank], own[rank], targets, tokens[rank], W * rank, 0, N)
    for rank in range(ranks):
        fold_cross_entropy(mine[rank], losses[rank], own[rank], others(own, rank), targets, rank, tokens[rank],
                           W * rank, micros, 0, N)  # fmt: skip
        np.testing.assert_array_equal(losses[rank], losses[0])
    return losses, np.concatenate(mine, axis=1)


@pytest.fixture(params=["float32", "bfloat16"])
def logits(request: pytest.FixtureRequest, draw: np.random.Generator) -> np.ndarray:
    """Of 29 tokens and 3 padded columns: the last of 4 ranks has 5 tokens."""
    drawn = (10 * draw.standard_normal((N, 32))).astype(np.float32)
    return drawn if request.param == "float32" else drawn.view(np.uint16)[:, 1::2].copy()


@pytest.mark.parametrize("ranks", [2, 4])
def test_the_softmax_of_parts_is_that_of_the_whole(draw, logits, ranks):
    V, micros = 29, 2
    targets = draw.integers(0, V, N).astype(np.int32)
    whole, expected = as_float(logits).copy(), np.empty(N, np.float32)
    cross_entropy(whole, expected, targets, V, micros, 0, N)
    losses, gradients = softmax(logits, ranks, targets, V, micros)
    np.testing.assert_allclose(losses[0], expected, rtol=1e-5)
    rounding = 1e-5 if logits.dtype == np.float32 else 2**-8
    np.testing.assert_allclose(as_float(gradients), whole, rtol=rounding, atol=1e-7)
    assert not gradients[:, V:].any()


def test_not_a_number_reaches_the_losses_of_all_ranks(draw, logits):
    V = 29
    logits[3, 20] = np.nan if logits.dtype == np.float32 else 0x7FC0
    losses, gradients = softmax(logits, 4, draw.integers(0, V, N).astype(np.int32), V, 1)
    assert np.isnan(losses[:, 3]).all()
    assert np.isnan(as_float(gradients)[3, :V]).all()
    for found in (losses.T, as_float(gradients)):
        assert np.isfinite(np.delete(found, 3, axis=0)).all()


def test_the_embeddings_of_parts_are_those_of_the_whole(draw):
    V, ranks = 12, 3
    tokens, positions = draw.integers(0, V, N).astype(np.int32), np.arange(N, dtype=np.int32)
    wte, wpe = (draw.standard_normal((rows, C)).astype(np.float32) for rows in (V, N))
    whole, dout = np.empty((N, C), np.float32), draw.standard_normal((N, C)).astype(np.float32)
    encoder_forward(whole, tokens, positions, wte, wpe, 0, N)
    dwhole = np.empty_like(wte)
    encoder_backward(dwhole, dout, tokens, 0, V, 0, 0, 0)
    parts = np.full((ranks, N, C), np.nan, np.float32)
    for rank in range(ranks):
        first, last = rank * V // ranks, (rank + 1) * V // ranks
        of_rank = np.ascontiguousarray(wte[first:last])
        encoder_forward_of_part(parts[rank], tokens, positions, of_rank, np.zeros((0, 0), np.float32) if rank else wpe,
                                first, 0, N)  # fmt: skip
        dpart = np.full_like(of_rank, np.nan)
        encoder_backward(dpart, dout, tokens, 0, last - first, 0, 0, first)
        np.testing.assert_array_equal(dpart, dwhole[first:last])
    out = np.empty((N, C), np.float32)
    fold_rows(out, parts[1], others(parts, 1), NO_BIAS, 1, 0, N)
    np.testing.assert_array_equal(out, whole)
