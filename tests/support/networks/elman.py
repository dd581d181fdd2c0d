"""A recurrence: h_t = tanh(wte[token_t] + wh h_(t-1)), logits_t = wte h_t. Each chunk of time is an op."""

import numpy as np

from gpt2core.compile.jit import kernel
from gpt2core.layers import attention, embedding, linear
from gpt2core.networks import language
from gpt2core.step import parameters, slicing
from gpt2core.step.grid import ROWS
from gpt2core.step.ops import Read, Tensor, Update, Write
from gpt2core.step.signature import Int32s, Matrix, Scalar, TileInt
from tests.support.networks import toy

C, V, row_of = 16, 64, attention.row_of


@kernel
def recur(h: Matrix, past: Matrix, shifted: Matrix, tokens: Int32s, wte: Matrix, wh: Matrix, T: Scalar, TS: Scalar,
          sample0: TileInt, sample1: TileInt, pos0: TileInt, pos1: TileInt):  # fmt: skip
    for b in range(sample0, sample1):
        for t in range(pos0, pos1):
            n = row_of(b, t, sample0, sample1, T, TS)
            for c in range(C):
                shifted[n, c] = past[row_of(b, t - 1, sample0, sample1, T, TS), c] if t else np.float32(0)
            for c in range(C):
                total = wte[tokens[n], c]
                for k in range(C):
                    total += shifted[n, k] * wh[c, k]
                h[n, c] = np.tanh(total)


@kernel
def recur_backward(da: Matrix, later: Matrix, h: Matrix, wh: Matrix, T: Scalar, TS: Scalar,
                   sample0: TileInt, sample1: TileInt, pos0: TileInt, pos1: TileInt):  # fmt: skip
    for b in range(sample0, sample1):
        for t in range(pos1 - 1, pos0 - 1, -1):
            n = row_of(b, t, sample0, sample1, T, TS)
            m = row_of(b, t + 1, sample0, sample1, T, TS)
            for c in range(C):
                total = da[n, c]
                for k in range(C if t + 1 < T else 0):
                    total += later[m, k] * wh[k, c]
                da[n, c] = total * (np.float32(1) - h[n, c] * h[n, c])


def recurrence(step, slices, h, shifted, tokens, wte, wh, **size):
    chunks = [*enumerate(slicing.chunks(slices))]
    for i, chunk in chunks:
        step.op("recur", "forward", recur, chunk, chunk.cost(ROWS, 2 * C * C, 8 * C), i, h=Write(h, ROWS),
                past=Read(h, "group0:row0"), shifted=Write(shifted, ROWS), tokens=Read(tokens, ROWS),
                wte=Read(wte), wh=Read(wh), **size)  # fmt: skip

    def reverse():
        da = step.tape.gradient(h)  # and then that of the sum before tanh
        for i, chunk in reversed(chunks):
            step.op("recur", "backward", recur_backward, chunk, chunk.cost(ROWS, 2 * C * C, 8 * C), i,
                    da=Update(da, ROWS), later=Read(da, "row1:group1"), h=Read(h, ROWS), wh=Read(wh), **size)
        linear.leave_weight_gradient(step, "wh", None, dout=da, inp=shifted, weight=wh)
        embedding.leave_gradient(step, weight=wte, dout=da, indices=Read(tokens))

    step.tape.leave(reverse, out=h, kind="recurrence", weights={w: parameters.matrix(step, w) for w in (wte, wh)})


class Elman(toy.ToyNetwork):
    def forward(self, config, step):
        slices, size = slicing.cut(config), {"T": config.seq, "TS": config.token_slice}
        every = slicing.grid(slices)
        language.load(step, config, every)
        recurrence(step, slices, *map(Tensor, ("h", "shifted", "inputs", "wte", "wh")), **size)
        linear.forward(step, "logits", every, None, out=Tensor("logits"), inp=Tensor("h"), weight=Tensor("wte"))
        language.mean_loss(step, config, every)


ROW_SHAPES = {"h": (1, C), "shifted": (1, C), "dh": (1, C), "logits": (1, V), "loss": (1,)}
NETWORK = Elman(toy.sizes("elman", V, 32), {"wte": (V, C), "wh": (C, C)}, ROW_SHAPES)
