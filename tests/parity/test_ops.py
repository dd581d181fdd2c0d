"""Every op, forward and backward, against PyTorch in float64 on random shapes.

An error is the norm of the difference relative to the norm of PyTorch's tensor; 3e-6 is about 25 units in the last
place of float32, the rounding error of sums of some hundred terms.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from bench.torch_gpt2 import attention
from gpt2core.gemm import libraries as gemm
from gpt2core.gemm.multiply import new_scratch
from gpt2core.layers.attention import BLOCK, attention_backward, attention_forward
from gpt2core.layers.embedding import encoder_backward, encoder_forward
from gpt2core.layers.gelu import gelu_backward, gelu_forward
from gpt2core.layers.layernorm import layernorm_backward, layernorm_backward_weight, layernorm_forward
from gpt2core.layers.linear import matmul_backward_input, matmul_backward_weight, matmul_forward
from gpt2core.layers.loss import cross_entropy
from gpt2core.layers.residual import residual_forward
from gpt2core.optimizers.adamw import adamw_update
from gpt2core.optimizers.sgd import sgd_update
from tests.support.processors import MKL

pytestmark = [pytest.mark.parity, pytest.mark.parametrize("seed", range(5))]
TOLERANCE = 3e-6
NONE = np.empty((0, 0), np.float32)  # no array


class Problem:
    """Random sizes and inputs. Each input is a float32 array and a float64 leaf tensor with the same values."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def size(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def draw(self, *shape: int, scale: float = 1.0) -> tuple[np.ndarray, Tensor]:
        values = (scale * self.rng.standard_normal(shape)).astype(np.float32)
        return values, torch.from_numpy(values.astype(np.float64)).requires_grad_(True)


def assert_close(got: np.ndarray, expected: Tensor | None, tolerance: float = TOLERANCE) -> None:
    assert expected is not None
    wanted = expected.detach().numpy().reshape(got.shape)
    assert np.linalg.norm(got - wanted) <= tolerance * np.linalg.norm(wanted)


def test_encoder(seed: int) -> None:
    p = Problem(seed)
    B, T, C, V = p.size(1, 4), p.size(1, 30), p.size(1, 70), p.size(1, 40)
    (wte, wte64), (wpe, wpe64), (dout, dout64) = p.draw(V, C), p.draw(T + 3, C), p.draw(B * T, C)
    tokens, positions = p.rng.integers(V, size=B * T, dtype=np.int32), np.tile(np.arange(T, dtype=np.int32), B)
    out64 = wte64[torch.from_numpy(tokens.astype(np.int64))] + wpe64[torch.arange(T).repeat(B)]
    out64.backward(dout64)
    out, dwte, dwpe = np.empty_like(dout), np.zeros_like(wte), np.empty_like(wpe)
    encoder_forward(out, tokens, positions, wte, wpe, 0, B * T)
    encoder_backward(dwte, dout, tokens, 0, V, 0, 1, 0)
    encoder_backward(dwpe, dout, positions, 0, T + 3, 0, 0, 0)
    assert_close(out, out64)
    assert_close(dwte, wte64.grad)
    assert_close(dwpe, wpe64.grad)


def test_layernorm(seed: int) -> None:
    p = Problem(seed)
    N, C = p.size(1, 50), p.size(8, 300)
    (inp, inp64), (weight, weight64), (bias, bias64), (dout, dout64) = p.draw(N, C), p.draw(C), p.draw(C), p.draw(N, C)
    out64 = F.layer_norm(inp64, (C,), weight64, bias64, eps=1e-5)
    out64.backward(dout64)
    out, mean, rstd = np.empty_like(inp), np.empty(N, np.float32), np.empty(N, np.float32)
    layernorm_forward(out, mean, rstd, inp, weight, bias, 0, N)
    dinp, again, partial = inp.copy(), dout.copy(), np.empty((1, 2 * C), np.float32)
    layernorm_backward(dinp, again, partial, np.zeros_like(inp), weight, bias, mean, rstd, 0, N, 0)
    dweight, dbias = np.empty_like(weight), np.empty_like(bias)
    layernorm_backward_weight(dweight, dbias, partial, 0, len(partial), 0)
    assert_close(out, out64)
    assert_close(again, out64)
    assert_close(dinp, inp64.grad)
    assert_close(dweight, weight64.grad)
    assert_close(dbias, bias64.grad)


@pytest.mark.parametrize("library", ["own", MKL, "openblas"])
def test_matmul(seed: int, library: str) -> None:
    p, (words, scratch) = Problem(seed), new_scratch()
    by = gemm.load(library)[0].by(200, scratch)
    N, C, OC = p.size(1, 60), p.size(1, 200), p.size(1, 200)
    (inp, inp64), (weight, weight64) = p.draw(N, C), p.draw(OC, C)
    (bias, bias64), (dout, dout64) = p.draw(OC), p.draw(N, OC)
    out64 = F.linear(inp64, weight64, bias64)
    out64.backward(dout64)
    out, dinp, dweight, dbias = np.empty_like(dout), np.empty_like(inp), np.empty_like(weight), np.empty_like(bias)
    matmul_forward(out, inp, weight, bias, by, 0, 0, N)
    matmul_backward_input(dinp, dout, weight, by, 0, N)
    matmul_backward_weight(dweight, dbias, dout, inp, by, 0, OC, 0, 0, 0)
    for got, expected in ((out, out64), (dinp, inp64.grad), (dweight, weight64.grad), (dbias, bias64.grad)):
        assert_close(got, expected)
    del words


@pytest.mark.parametrize("library", ["own", MKL, "openblas"])
def test_attention(seed: int, library: str) -> None:
    p, (words, scratch) = Problem(seed), new_scratch()
    by = gemm.load(library)[0].by(0, scratch)
    B, T, NH, hs = p.size(1, 3), p.size(1, 150), p.size(1, 4), p.size(1, 40)
    C = NH * hs
    (qkv, qkv64), (dout, dout64) = p.draw(B, T, 3 * C), p.draw(B, T, C)
    out64 = attention(qkv64, NH)
    out64.backward(dout64)
    qkv, dout = qkv.reshape(B * T, 3 * C), dout.reshape(B * T, C)
    out, lse, dqkv = np.empty_like(dout), np.empty((B * T, NH), np.float32), np.empty_like(qkv)
    strips = np.empty((2, (BLOCK + 1) * T), np.float32)
    attention_forward(out, lse, qkv, by, strips, 0, B, 0, T, T, T)
    attention_backward(dqkv, dout, qkv, out, lse, by, strips, (0, B, 0, NH), T, T)
    assert_close(out, out64)
    assert_close(dqkv, qkv64.grad)
    del words


def test_gelu(seed: int) -> None:
    p = Problem(seed)
    N, M = p.size(1, 20), p.size(1, 400)
    (inp, inp64), (dout, dout64) = p.draw(N, M, scale=2.0), p.draw(N, M)
    out64 = F.gelu(inp64, approximate="tanh")
    out64.backward(dout64)
    out, dinp = np.empty_like(inp), dout.copy()
    gelu_forward(out, NONE, inp, 0, N)
    assert_close(out, out64)
    again = inp.copy()
    gelu_backward(dinp, again, NONE, 0, N)
    assert_close(again, out64)
    assert_close(dinp, inp64.grad)


def test_residual(seed: int) -> None:
    p = Problem(seed)
    N, C = p.size(1, 20), p.size(1, 100)
    (inp, inp64), (branch, branch64) = p.draw(N, C), p.draw(N, C)
    residual_forward(branch, inp, 0, N)
    assert_close(branch, inp64 + branch64)


def test_cross_entropy(seed: int) -> None:
    p = Problem(seed)
    N, V = p.size(1, 20), p.size(1, 700)
    logits, logits64 = p.draw(N, -(-V // 128) * 128, scale=5.0)
    targets = p.rng.integers(V, size=N, dtype=np.int32)
    loss64 = F.cross_entropy(logits64[:, :V], torch.from_numpy(targets.astype(np.int64)), reduction="none")
    loss64.mean().backward()
    loss = np.empty(N, np.float32)
    cross_entropy(logits, loss, targets, V, 1, 0, N)
    assert_close(loss, loss64)
    assert_close(logits, logits64.grad)


def test_adamw(seed: int) -> None:
    """Compare with 20 steps of PyTorch's own AdamW in float32, with weight decay."""
    p = Problem(seed)
    n = p.size(1, 1000)
    weights, _ = p.draw(n)
    parameter = torch.from_numpy(weights.copy()).requires_grad_(True)
    optimizer = torch.optim.AdamW([parameter], lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1)
    first, second = np.zeros(n, np.float32), np.zeros(n, np.float32)
    settings = np.array([1e-3, 0.9, 0.999, 1e-8, 0.1])
    for step in range(20):
        gradients, _ = p.draw(n, scale=0.01)
        parameter.grad = torch.from_numpy(gradients)
        optimizer.step()
        adamw_update(weights, gradients, first, second, settings, 1e-3, settings[4], np.float32(1), step, 0, n, 0)
    assert_close(weights, parameter, tolerance=1e-6)
    assert_close(first, optimizer.state[parameter]["exp_avg"])
    assert_close(second, optimizer.state[parameter]["exp_avg_sq"])


@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
def test_sgd(seed: int, momentum: float, nesterov: bool) -> None:
    """Compare with 20 steps of PyTorch's own SGD in float32, with weight decay."""
    p = Problem(seed)
    n = p.size(1, 1000)
    weights, _ = p.draw(n)
    parameter = torch.from_numpy(weights.copy()).requires_grad_(True)
    optimizer = torch.optim.SGD([parameter], lr=1e-2, momentum=momentum, nesterov=nesterov, weight_decay=0.1)
    velocity = np.zeros(n if momentum else 0, np.float32)
    settings = np.array([1e-2, momentum, nesterov, 0.1])
    for _ in range(20):
        gradients, _ = p.draw(n, scale=0.1)
        parameter.grad = torch.from_numpy(gradients)
        optimizer.step()
        sgd_update(weights, gradients, velocity, settings, 1e-2, settings[3], np.float32(1), 0, n, 0)
    assert_close(weights, parameter, tolerance=1e-6)
    if momentum:
        assert_close(velocity, optimizer.state[parameter]["momentum_buffer"])
