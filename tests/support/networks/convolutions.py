"""3x3 convolutions of stride 2 on images of 8x8: 64, 16, 4 and 1 rows a sample; the last layer gives the classes."""

import numpy as np

from gpt2core.compile.jit import kernel
from gpt2core.layers import linear, samples
from gpt2core.networks import language
from gpt2core.step import slicing
from gpt2core.step.ops import Read, Tensor, Write
from gpt2core.step.signature import Matrix, Scalar, TileInt
from tests.support.networks import toy

CHANNELS, SIDES, AREAS, ROWS = (1, 6, 12, 5), (8, 4, 2, 1), (64, 16, 4, 1), "row0:row1"  # images, then layers


@kernel
def source(n, k, side):
    """Row of the image that is element k of the patch of output row n; -1 outside of the image."""
    sample, at = divmod(n, side * side // 4)
    y, x = 2 * (at // (side // 2)) + k // 3 - 1, 2 * (at % (side // 2)) + k % 3 - 1
    return sample * side * side + y * side + x if 0 <= y < side and 0 <= x < side else -1


@kernel
def unfold(out: Matrix, x: Matrix, side: Scalar, row0: TileInt, row1: TileInt):
    """Write the patches of max(x, 0): one row for each row of the output."""
    for n in range(row0, row1):
        for k in range(9):
            m, C = source(n, k, side), x.shape[1]
            for c in range(C):
                out[n, k * C + c] = max(x[m, c], np.float32(0)) if m >= 0 else np.float32(0)


@kernel
def fold(dx: Matrix, dout: Matrix, x: Matrix, side: Scalar, row0: TileInt, row1: TileInt, x0: TileInt, x1: TileInt):
    """Write the gradient of rows [x0, x1) of x from the gradient of the patches."""
    dx[x0:x1] = 0
    for n in range(row0, row1):
        for k in range(9):
            m, C = source(n, k, side), x.shape[1]
            for c in range(C if m >= 0 else 0):
                dx[m, c] += dout[n, k * C + c] if x[m, c] > 0 else np.float32(0)


def patches(step, grid, i, *, out, x):
    step.op("unfold", "forward", unfold, grid, grid.cost(ROWS, 0, 72 * CHANNELS[i]), i,
            out=Write(out, ROWS), x=Read(x, "x0:x1"), side=SIDES[i])  # fmt: skip

    def reverse():
        dx, dout = step.tape.gradient(x), step.tape.gradient(out)
        step.op("fold", "backward", fold, grid, grid.cost(ROWS, 9 * CHANNELS[i], 72 * CHANNELS[i]), i,
                dx=Write(dx, "x0:x1"), dout=Read(dout, ROWS), x=Read(x, "x0:x1"), side=SIDES[i])  # fmt: skip

    step.tape.leave(reverse, out=out, inp=x)


class Convolutions(toy.ToyNetwork):
    def data(self, config):
        rng, count = np.random.default_rng(config.seed), config.batch * config.steps
        images = rng.random((count * AREAS[0], 1), np.float32)
        return {"samples": images, "classes": rng.integers(CHANNELS[-1], size=count, dtype=np.int32)}

    def forward(self, config, step):
        slices, x = slicing.cut(config), [*(Tensor(f"x{i}") for i in range(3)), Tensor("logits")]
        samples.forward(step, slicing.grid(slices, out=AREAS[0]), out=x[0], targets=Tensor("targets"), micros=1)
        for i in range(3):
            grid, p = slicing.grid(slices, row=AREAS[i + 1], x=AREAS[i]), Tensor(f"p{i}")
            patches(step, grid, i, out=p, x=x[i])
            linear.forward(step, "conv", grid, i, out=x[i + 1], inp=p, weight=Tensor(f"w{i}"))
        language.mean_loss(step, config, slicing.grid(slices))


W = {f"w{i}": (CHANNELS[i + 1], 9 * CHANNELS[i]) for i in range(3)}
IMAGES = {f"{d}x{i}": (AREAS[i], CHANNELS[i]) for i in range(3) for d in ("", "d")[: i + 1]}
OTHERS: dict[str, tuple[int, ...]] = {"logits": (1, 5), "loss": (1,)}
OTHERS |= {f"{d}p{i}": (AREAS[i + 1], 9 * CHANNELS[i]) for i in range(3) for d in ("", "d")[: i + 1]}
NETWORK = Convolutions(toy.sizes("convolutions", vocab=5, context=1), W, {**IMAGES, **OTHERS})
