"""The kernels' gradients against finite differences, independent of PyTorch.

Central differences of a float64 NumPy forward pass written from the formulae: in float64 with eps 1e-5 they are
accurate to about 1e-9. Those of the float32 kernel itself would be accurate to 1e-3 at best. Each forward pass is
compared with the kernel's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpt2core.layers.attention import BLOCK, attention_backward, attention_forward
from gpt2core.layers.gelu import gelu_backward, gelu_forward
from gpt2core.layers.layernorm import layernorm_backward, layernorm_backward_weight, layernorm_forward
from gpt2core.layers.loss import cross_entropy
from tests.support.finite_differences import draw, gradient

CLOSE: dict[str, Any] = {"rtol": 1e-5, "atol": 2e-6}
NONE = np.empty((0, 0), np.float32)  # no array
By = Callable[..., tuple[int, int, int, int]]


def layernorm(inp: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    centred = inp - inp.mean(1, keepdims=True)
    out: np.ndarray = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5) * weight + bias
    return out


def test_layernorm() -> None:
    inp, weight, bias, dout = draw(5, 11), 1 + draw(11), draw(11, seed=1), draw(5, 11, seed=1)
    out, mean, rstd = np.empty_like(inp), np.empty(5, np.float32), np.empty(5, np.float32)
    layernorm_forward(out, mean, rstd, inp, weight, bias, 0, 5)
    np.testing.assert_allclose(out, layernorm(inp.astype(np.float64), weight, bias), **CLOSE)
    dinp, partial = inp.copy(), np.empty((1, 22), np.float32)
    layernorm_backward(dinp, dout.copy(), partial, np.zeros_like(inp), weight, bias, mean, rstd, 0, 5, 0)
    dweight, dbias = np.empty(11, np.float32), np.empty(11, np.float32)
    layernorm_backward_weight(dweight, dbias, partial, 0, len(partial), 0)
    np.testing.assert_allclose(dinp, gradient(lambda x: layernorm(x, weight, bias), inp, dout), **CLOSE)
    np.testing.assert_allclose(dweight, gradient(lambda w: layernorm(inp, w, bias), weight, dout), **CLOSE)
    np.testing.assert_allclose(dbias, gradient(lambda b: layernorm(inp, weight, b), bias, dout), **CLOSE)


def attention(qkv: np.ndarray, heads: int) -> np.ndarray:
    """One sequence (T, 3C), token by token and head by head."""
    T, C = qkv.shape[0], qkv.shape[1] // 3
    hs, out = C // heads, np.empty((T, C))
    for t in range(T):
        for h in range(0, C, hs):
            scores = qkv[: t + 1, C + h : C + h + hs] @ qkv[t, h : h + hs] / np.sqrt(hs)
            shares = np.exp(scores - scores.max())
            out[t, h : h + hs] = shares / shares.sum() @ qkv[: t + 1, 2 * C + h : 2 * C + h + hs]
    return out


def test_attention(by: By) -> None:
    T, C, NH, TS = 6, 6, 2, 4
    qkv, dout = draw(T, 3 * C), draw(T, C)
    out, lse, dqkv = np.empty((T, C), np.float32), np.empty((T, NH), np.float32), np.empty_like(qkv)
    strips = np.empty((2, (BLOCK + 1) * T), np.float32)
    for time0, time1 in ((0, 4), (4, 6)):
        attention_forward(out, lse, qkv, by(), strips, 0, 1, time0, time1, T, TS)
    for head in range(NH):
        attention_backward(dqkv, dout, qkv, out, lse, by(), strips, (0, 1, head, head + 1), T, TS)
    np.testing.assert_allclose(out, attention(qkv.astype(np.float64), NH), **CLOSE)
    np.testing.assert_allclose(dqkv, gradient(lambda x: attention(x, NH), qkv, dout), **CLOSE)


def loss_of(logits: np.ndarray, targets: np.ndarray, V: int) -> np.ndarray:
    seen = logits[:, :V]
    loss: np.ndarray = np.log(np.exp(seen).sum(1)) - seen[np.arange(len(seen)), targets]
    return loss


def test_cross_entropy() -> None:
    V, logits, targets = 9, draw(4, 12), np.array([0, 8, 3, 3], np.int32)
    dlogits, loss = logits.copy(), np.empty(4, np.float32)
    cross_entropy(dlogits, loss, targets, V, 1, 0, 4)
    np.testing.assert_allclose(loss, loss_of(logits.astype(np.float64), targets, V), **CLOSE)
    expected = gradient(lambda x: loss_of(x, targets, V), logits, np.full(4, 1 / 4))
    np.testing.assert_allclose(dlogits, expected, **CLOSE)


def gelu(x: np.ndarray) -> np.ndarray:
    out: np.ndarray = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return out


def test_gelu() -> None:
    inp, dout = 2 * draw(3, 8), draw(3, 8, seed=1)
    out, dinp = np.empty_like(inp), dout.copy()
    gelu_forward(out, NONE, inp, 0, 3)
    np.testing.assert_allclose(out, gelu(inp.astype(np.float64)), **CLOSE)
    gelu_backward(dinp, inp.copy(), NONE, 0, 3)
    np.testing.assert_allclose(dinp, gradient(gelu, inp, dout), **CLOSE)
