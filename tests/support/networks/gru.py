"""A GRU as a language model, written from docs/how-to/add-a-network.md: Cho et al. 2014, as torch.nn.GRU."""

from dataclasses import dataclass

import numpy as np

from gpt2core.compile.jit import kernel
from gpt2core.layers import cell, embedding, linear
from gpt2core.networks import language, token_rows
from gpt2core.networks.network import Network
from gpt2core.optimizers import state
from gpt2core.spec.fields import check_int
from gpt2core.spec.networks import Model
from gpt2core.step import parameters, slicing
from gpt2core.step.grid import ROWS
from gpt2core.step.ops import Read, Tensor, Update, Write
from gpt2core.step.signature import Matrix, Scalar, TileInt, Vector
from gpt2core.step.tensors import TensorSpec

ONE, ZERO, sigmoid, tanh = np.float32(1), np.float32(0), cell.sigmoid, cell.tanh


@kernel
def gru_forward(
    h: Matrix, past: Matrix, kept: Matrix, hidden: Matrix, gates: Matrix, weight: Matrix, bias: Vector,
    sample0: TileInt, sample1: TileInt, pos0: TileInt, pos1: TileInt, row0: TileInt,
):  # fmt: skip
    """gates (N, 3H) become r, z, n; hidden (N, 3H): kept @ weight.T + bias, where kept is h of the time before."""
    H, n = h.shape[1], sample1 - sample0
    for row in range(row0, row0 + (pos1 - pos0) * n):
        for c in range(H):
            kept[row, c] = past[row - n, c] if pos0 or row >= row0 + n else ZERO
        for g in range(3 * H):
            hidden[row, g] = bias[g]
            for c in range(H):
                hidden[row, g] += kept[row, c] * weight[g, c]
        for c in range(H):
            r = gates[row, c] = sigmoid(gates[row, c] + hidden[row, c])
            z = gates[row, H + c] = sigmoid(gates[row, H + c] + hidden[row, H + c])
            new = gates[row, 2 * H + c] = tanh(gates[row, 2 * H + c] + r * hidden[row, 2 * H + c])
            h[row, c] = (ONE - z) * new + z * kept[row, c]


@kernel
def gru_backward(
    gates: Matrix, hidden: Matrix, dpast: Matrix, later: Matrix, dh: Matrix, kept: Matrix, weight: Matrix, T: Scalar,
    sample0: TileInt, sample1: TileInt, pos0: TileInt, pos1: TileInt, row0: TileInt,
):  # fmt: skip
    """gates and hidden become their gradients; dpast: the gradient of h of the time before."""
    H, n = dh.shape[1], sample1 - sample0
    end = row0 + (pos1 - pos0) * n
    for row in range(end - 1, row0 - 1, -1):
        for c in range(H):
            d = dh[row, c] + (later[row + n, c] if pos1 < T or row < end - n else ZERO)
            r, z, new = gates[row, c], gates[row, H + c], gates[row, 2 * H + c]
            dz = d * (kept[row, c] - new) * z * (ONE - z)
            dnew = d * (ONE - z) * (ONE - new * new)
            dr = dnew * hidden[row, 2 * H + c] * r * (ONE - r)
            gates[row, c], gates[row, H + c], gates[row, 2 * H + c] = dr, dz, dnew
            hidden[row, c], hidden[row, H + c], hidden[row, 2 * H + c] = dr, dz, dnew * r
            dpast[row, c] = d * z
        for g in range(3 * H):
            for c in range(H):
                dpast[row, c] += hidden[row, g] * weight[g, c]


def recur(step, slices, T, *, h, kept, hidden, gates, weight, bias):
    H, chunks = step.shape(h)[1], [*enumerate(slicing.chunks(slices))]
    for i, chunk in chunks:
        step.op("recur", "forward", gru_forward, chunk, chunk.cost(ROWS, 6 * H * H, 40 * H), i, h=Write(h, ROWS),
                past=Read(h, "group0:row0"), kept=Write(kept, ROWS), hidden=Write(hidden, ROWS),
                gates=Update(gates, ROWS), weight=Read(weight), bias=Read(bias))  # fmt: skip

    def reverse():
        dpast = Tensor("dpast")
        for i, chunk in reversed(chunks):
            step.op("recur", "backward", gru_backward, chunk, chunk.cost(ROWS, 6 * H * H, 40 * H), i,
                    gates=Update(gates, ROWS), hidden=Update(hidden, ROWS), dpast=Write(dpast, ROWS),
                    later=Read(dpast, "row1:group1"), dh=Read(step.tape.gradient(h), ROWS), kept=Read(kept, ROWS),
                    weight=Read(weight), T=T)  # fmt: skip
        linear.leave_weight_gradient(step, "hidden", None, dout=hidden, inp=kept, weight=weight, bias=bias)

    step.tape.gradient_in(gates, gates)
    step.tape.leave(reverse, out=h, inp=gates, kind="recur", weights={weight: parameters.matrix(step, weight, bias)})


@dataclass(frozen=True)
class Gru(Model):
    """H hidden units, as wide as the embedding, V vocabulary."""

    network = "gru"
    hidden: int = 64
    vocab: int = 256
    context: int = 1024
    name: str = "gru"

    def __post_init__(self):
        for size in ("hidden", "vocab", "context"):
            check_int(f"model.{size}", getattr(self, size), 1, 1 << 16)

    def step_flop(self, samples, positions):
        return 6 * samples * positions * (6 * self.hidden**2 + self.hidden * self.vocab)


class GruNetwork(Network):
    model = Gru

    def tensors(self, config):
        H, V, N = config.model.hidden, config.model.vocab, config.batch * config.seq
        shapes = {"embedding": (V, H), "weight_ih": (3 * H, H), "bias_ih": (3 * H,), "weight_hh": (3 * H, H),
                  "bias_hh": (3 * H,), "head": (V, H), "head_bias": (V,)}  # fmt: skip
        rows = {"embedded": H, "dembedded": H, "gates": 3 * H, "hidden": 3 * H, "kept": H, "h": H, "dh": H, "dpast": H,
                "logits": V}  # fmt: skip
        activations = [TensorSpec("loss", (N,)), *(TensorSpec(name, (N, width)) for name, width in rows.items())]
        weights = state.arenas(config, [TensorSpec(*each) for each in shapes.items()])
        return {**weights, "activations": [*token_rows.specs(config), *activations]}

    def data(self, config):
        return token_rows.data(config, time_major=True)

    def initialise(self, config, weights):
        rng = np.random.default_rng(config.seed)
        for array in weights.values():
            array[...] = rng.uniform(-0.3, 0.3, array.shape)

    def forward(self, config, step):
        slices, x, gates, h = slicing.cut(config), Tensor("embedded"), Tensor("gates"), Tensor("h")
        grid = slicing.grid(slices)
        language.load(step, config, grid)
        embedding.forward_of_tokens(step, grid, out=x, tokens=Tensor("inputs"), weight=Tensor("embedding"), bias=None)
        linear.forward(step, "gates_in", grid, None, out=gates, inp=x, weight=Tensor("weight_ih"),
                       bias=Tensor("bias_ih"))  # fmt: skip
        recur(step, slices, config.seq, h=h, kept=Tensor("kept"), hidden=Tensor("hidden"), gates=gates,
              weight=Tensor("weight_hh"), bias=Tensor("bias_hh"))  # fmt: skip
        linear.forward(step, "logits", grid, None, out=Tensor("logits"), inp=h, weight=Tensor("head"),
                       bias=Tensor("head_bias"))  # fmt: skip
        language.mean_loss(step, config, grid)


NETWORK = GruNetwork()
