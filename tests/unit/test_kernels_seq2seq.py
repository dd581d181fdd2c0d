"""The kernels of seq2seq against finite differences of their formulae in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpt2core.layers import bridge, cross_attention, gru, tanh
from gpt2core.layers.masked_loss import masked_cross_entropy, masked_negative_log_likelihood
from gpt2core.layers.recurrence import Chunk
from tests.support.finite_differences import draw, gradient

By = Callable[..., tuple[int, int, int, int]]
CLOSE: dict[str, Any] = {"rtol": 2e-5, "atol": 4e-6}
T, H, B = 5, 4, 2  # one group: row t * B + b
LENGTHS, TARGETS = np.array([3, 5], np.int32), np.array([5, 2], np.int32)


def cells(gates: np.ndarray, weight: np.ndarray, bias: np.ndarray, first: np.ndarray, backwards: bool) -> np.ndarray:
    """h (N, H), 0 after the end of a sequence."""
    out = np.zeros((T * B, H))
    for b in range(B):
        h, times = first[b].astype(np.float64), range(LENGTHS[b])
        for t in reversed(times) if backwards else times:
            (r, z, new), (hr, hz, hn) = np.split(gates[t * B + b], 3), np.split(h @ weight.T + bias, 3)
            r, z = 1 / (1 + np.exp(-r - hr)), 1 / (1 + np.exp(-z - hz))
            out[t * B + b] = h = (1 - z) * np.tanh(new + r * hn) + z * h
    return out


@pytest.mark.parametrize("backwards", [False, True])
def test_gru(by: By, backwards: bool) -> None:
    """In two chunks of time; a second direction's columns stay."""
    gates, weight, bias, dh = draw(T * B, 6 * H), draw(3 * H, H), draw(3 * H), draw(T * B, 2 * H)
    first = np.zeros((B, H), np.float32) if backwards else draw(B, H)
    kept, hidden, dpast = (np.full((T * B, width), np.nan, np.float32) for width in (H, 3 * H, H))
    h, given = np.full((T * B, 2 * H), 7, np.float32), gates.copy()
    chunks = [(0, 3), (3, T)][:: -1 if backwards else 1]
    for pos0, pos1 in chunks:
        gru.gru_forward(
            h, h, kept, hidden, gates, first, LENGTHS, gru.Weights(weight, bias), by(), gru.Times(T, int(backwards)),
            Chunk(0, B, pos0, pos1, pos0 * B), gru.Place(H, 3 * H),
        )  # fmt: skip
    mine = given[:, 3 * H :].astype(np.float64)
    np.testing.assert_allclose(h[:, H:], cells(mine, weight, bias, first, backwards), **CLOSE)
    assert (h[:, :H] == 7).all()
    for pos0, pos1 in reversed(chunks):
        gru.gru_backward(
            gates, hidden, dpast, dpast, dh, kept, LENGTHS, weight, by(), gru.Times(T, int(backwards)),
            Chunk(0, B, pos0, pos1, pos0 * B), gru.Place(H, 3 * H),
        )  # fmt: skip
    dout = dh[:, H:]
    np.testing.assert_allclose(
        gates[:, 3 * H :], gradient(lambda x: cells(x, weight, bias, first, backwards), mine, dout), **CLOSE
    )
    assert np.array_equal(gates[:, : 3 * H], given[:, : 3 * H])
    dweight = gradient(lambda w: cells(mine, w, bias, first, backwards), weight, dout)
    np.testing.assert_allclose(hidden.T @ kept, dweight, **CLOSE)
    if not backwards:
        dfirst = gradient(lambda x: cells(mine, weight, bias, x, backwards), first, dout)
        np.testing.assert_allclose(dpast[:B], dfirst, **CLOSE)


def attention(decoded: np.ndarray, encoded: np.ndarray) -> np.ndarray:
    out = np.zeros((T * B, 2 * H))
    for b in range(B):
        others = encoded[b :: B][: LENGTHS[b]]
        for t in range(TARGETS[b]):
            scores = others @ decoded[t * B + b]
            shares = np.exp(scores - scores.max())
            out[t * B + b] = np.concatenate([shares / shares.sum() @ others, decoded[t * B + b]])
    return out


def test_cross_attention() -> None:
    decoded, encoded, dmixed = draw(T * B, H), draw(T * B, H, seed=1), draw(T * B, 2 * H)
    mixed, shares, dshares = (np.full((T * B, width), np.nan, np.float32) for width in (2 * H, T, T))
    lengths = cross_attention.Lengths(LENGTHS, TARGETS)
    for pos0, pos1 in ((0, 2), (2, T)):
        cross_attention.cross_attention(
            mixed, shares, decoded, encoded, lengths, 0, B, pos0, pos1, pos0 * B, 0
        )
    wide = decoded.astype(np.float64), encoded.astype(np.float64)
    np.testing.assert_allclose(mixed, attention(*wide), **CLOSE)
    ddecoded, dencoded = np.full_like(decoded, np.nan), np.full_like(decoded, np.nan)
    cross_attention.cross_attention_backward(
        ddecoded, dencoded, dshares, dmixed, shares, decoded, encoded, lengths, 0, B, 0, T * B
    )
    np.testing.assert_allclose(ddecoded, gradient(lambda x: attention(x, wide[1]), decoded, dmixed), **CLOSE)
    np.testing.assert_allclose(dencoded, gradient(lambda x: attention(wide[0], x), encoded, dmixed), **CLOSE)


def test_bridge() -> None:
    encoded, dfirst, dencoded = draw(T * B, H), draw(T * B, H, seed=1), np.zeros((T * B, H), np.float32)
    first = np.empty((B, H), np.float32)
    bridge.bridge(first, encoded, LENGTHS, 0, B, 0)

    def states(x: np.ndarray) -> np.ndarray:
        lasts = [np.concatenate([x[(LENGTHS[b] - 1) * B + b, : H // 2], x[b, H // 2 :]]) for b in range(B)]
        return np.array(lasts)

    assert np.array_equal(first, states(encoded))
    bridge.bridge_backward(dencoded, dfirst, LENGTHS, 0, B, 0)
    np.testing.assert_allclose(dencoded, gradient(states, encoded, dfirst[:B]), **CLOSE)


def test_tanh() -> None:
    x, dout = draw(6, 9), draw(6, 9, seed=1)
    out, dinp = x.copy(), dout.copy()
    tanh.tanh(out, 0, 6)
    tanh.tanh_backward(dinp, out, 0, 6)
    np.testing.assert_allclose(out, np.tanh(x), **CLOSE)
    np.testing.assert_allclose(dinp, gradient(np.tanh, x, dout), **CLOSE)


def test_masked_loss() -> None:
    """A step has two batches of two pairs, with 4 and 6 targets. Then it starts over."""
    logits, targets = draw(6, 9), np.array([3, -1, 8, 0, -1, 2], np.int32)
    lengths = np.array([9, 3, 9, 1, 9, 3, 9, 3], np.int32)
    real, ours, loss, alone = targets >= 0, logits.copy(), np.empty(6, np.float32), np.empty(6, np.float32)
    masked_negative_log_likelihood(alone, ours, targets, lengths, 2, 2, 3, 0, 6)
    assert np.array_equal(ours, logits)
    masked_cross_entropy(ours, loss, targets, lengths, 2, 2, 3, 0, 6)

    def losses(x: np.ndarray) -> np.ndarray:
        found = np.log(np.exp(x).sum(1)) - x[np.arange(6), np.maximum(targets, 0)]
        return np.where(real, found, 0)

    np.testing.assert_allclose(loss, losses(logits.astype(np.float64)) * 6 * 2 / 10, **CLOSE)
    np.testing.assert_allclose(alone, loss, **CLOSE)
    np.testing.assert_allclose(ours, gradient(losses, logits, np.full(6, 1 / 10)), **CLOSE)
