"""A batch's samples and their classes, copied from arrays outside the arenas."""

from gpt2core.compile.jit import kernel
from gpt2core.step.builder import Builder
from gpt2core.step.grid import F32, ROWS, Grid
from gpt2core.step.ops import Outside, Tensor, Write
from gpt2core.step.signature import Int32s, Matrix, Scalar, Step, TileInt


@kernel
def samples_load(
    out: Matrix, targets: Int32s, samples: Matrix, classes: Int32s, micros: Scalar, micro: Scalar, step: Step,
    row0: TileInt, row1: TileInt, out0: TileInt, out1: TileInt,
):  # fmt: skip
    """Copy samples [row0, row1) of a step's batch `micro`, one of `micros`, and their classes.

    Writes:   out (N*R, C) =, rows [out0, out1); targets (N,) =, int32
    Reads:    samples (any*R, C), classes (any,) int32: R rows and one class for each sample
    Maths:    batch i holds samples [i*N, (i+1)*N]; after the last whole batch it starts over
    Tiles:    disjoint ranges of samples are independent
    """
    N = targets.shape[0]
    start = (step * micros + micro) % (classes.shape[0] // N) * N
    each = out.shape[0] // N
    for n in range(out0, out1):
        for c in range(out.shape[1]):
            out[n, c] = samples[start * each + n, c]
    for n in range(row0, row1):
        targets[n] = classes[start + n]


def forward(step: Builder, grid: Grid, *, out: Tensor, targets: Tensor, micros: int) -> None:
    """Add the loading of a batch from the arrays `samples` and `classes` of the network's data.

    Of the grid, row0:row1 are a slice's samples and out0:out1 their rows.
    """
    step.op(
        "samples", "data", samples_load, grid, grid.cost("out0:out1", 0, 2 * F32 * step.shape(out)[-1]),
        out=Write(out, "out0:out1"), targets=Write(targets, ROWS),
        samples=Outside("samples"), classes=Outside("classes"), micros=micros, micro=step.batch,
    )  # fmt: skip
