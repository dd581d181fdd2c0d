"""The kernels of the reader against finite differences of their formulae in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpt2core.layers import double_attention, pointer
from tests.support.finite_differences import draw, gradient

By = Callable[..., tuple[int, int, int, int]]
CLOSE: dict[str, Any] = {"rtol": 2e-5, "atol": 4e-6}
T, Q, D, B = 5, 4, 3, 2  # one group: rows t * B + b and q * B + b
LENGTHS, QUERIES = np.array([3, 5], np.int32), np.array([4, 2], np.int32)
WORDS = np.array([7, 2, 7, 3, 4, 2, 0, 2, 0, 3], np.int32)  # 7 7 4 and 2 3 2 2 3
ANSWERS = np.array([7, 3], np.int32)


def test_match(by: By) -> None:
    """In two slices of time."""
    document, query, dscores = draw(T * B, D), draw(Q * B, D, seed=1), draw(T * B, Q, seed=2)
    scores, ddocument, dquery = (np.full(like.shape, np.nan, np.float32) for like in (dscores, document, query))
    for pos0, pos1 in ((0, 3), (3, T)):
        double_attention.match(scores, document, query, by(), 0, B, pos0 * B, pos1 * B, 0)
        double_attention.match_backward_document(ddocument, dscores, query, by(), 0, B, pos0 * B, pos1 * B, 0)
    double_attention.match_backward_query(dquery, dscores, document, by(), 0, B, 0, T * B, 0)

    def products(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.stack([x[b::B] @ y[b::B].T for b in range(B)], axis=1).reshape(T * B, Q)

    np.testing.assert_allclose(scores, products(document, query), **CLOSE)
    np.testing.assert_allclose(ddocument, gradient(lambda x: products(x, query), document, dscores), **CLOSE)
    np.testing.assert_allclose(dquery, gradient(lambda x: products(document, x), query, dscores), **CLOSE)


def attention(scores: np.ndarray) -> np.ndarray:
    out = np.zeros(T * B)
    for b in range(B):
        own = scores[b::B][: LENGTHS[b], : QUERIES[b]]
        alpha, beta = (np.exp(own - own.max(axis, keepdims=True)) for axis in (0, 1))
        alpha, beta = alpha / alpha.sum(0), beta / beta.sum(1, keepdims=True)
        out[b::B][: LENGTHS[b]] = alpha @ beta.mean(0)
    return out


def test_attention_over_attention() -> None:
    scores, dattended = draw(T * B, Q), draw(T * B)
    alpha, lengths = scores.copy(), double_attention.Lengths(LENGTHS, QUERIES)
    rows, attended = np.full_like(scores, np.nan), np.full(T * B, np.nan, np.float32)
    mean, dmean = (np.full((B, Q), np.nan, np.float32) for _ in range(2))
    double_attention.double_attention(alpha, rows, mean, attended, lengths, 0, B, 0, T * B)
    np.testing.assert_allclose(attended, attention(scores.astype(np.float64)), **CLOSE)
    np.testing.assert_allclose([attended[b::B].sum() for b in range(B)], 1, **CLOSE)
    double_attention.double_attention_backward(alpha, dmean, dattended, rows, mean, lengths, 0, B, 0)
    np.testing.assert_allclose(alpha, gradient(attention, scores, dattended), **CLOSE)


def sums(attended: np.ndarray) -> np.ndarray:
    out = np.zeros((B, T))
    for b in range(B):
        words, own = WORDS[b::B][: LENGTHS[b]], attended[b::B][: LENGTHS[b]]
        out[b, : LENGTHS[b]] = (words[:, None] == words) @ own
    return out


def losses(attended: np.ndarray) -> np.ndarray:
    found = sums(attended)
    return np.array([-np.log(found[b, list(WORDS[b::B]).index(ANSWERS[b])]) for b in range(B)])


def test_pointer_sum_and_its_loss() -> None:
    """A step has three batches of two records."""
    attended, dsum = np.abs(draw(T * B)) + np.float32(0.1), draw(B, T)
    dattended, probabilities = np.full(T * B, np.nan, np.float32), np.full((B, T), np.nan, np.float32)
    wide = attended.astype(np.float64)
    pointer.pointer_sum(probabilities, attended, WORDS, LENGTHS, 0, B, 0)
    np.testing.assert_allclose(probabilities, sums(wide), **CLOSE)
    pointer.pointer_sum_backward(dattended, dsum, WORDS, LENGTHS, 0, B, 0, T * B)
    np.testing.assert_allclose(dattended, gradient(sums, attended, dsum), **CLOSE)

    loss, alone, right = (np.full(B, np.nan, np.float32) for _ in range(3))
    pointer.pointer_loss(alone, right, probabilities, WORDS, ANSWERS, LENGTHS, 0, B, 0)
    found = sums(wide)
    top = [float(np.exp(-each) >= own.max() - 1e-6) for each, own in zip(losses(wide), found, strict=True)]
    assert right.tolist() == top
    pointer.pointer_loss_backward(probabilities, loss, right, WORDS, ANSWERS, LENGTHS, 3, 0, B, 0)
    np.testing.assert_allclose(loss, losses(wide), **CLOSE)
    assert np.array_equal(alone, loss)
    pointer.pointer_sum_backward(dattended, probabilities, WORDS, LENGTHS, 0, B, 0, T * B)
    np.testing.assert_allclose(dattended, gradient(losses, attended, np.full(B, 1 / 6)), **CLOSE)
