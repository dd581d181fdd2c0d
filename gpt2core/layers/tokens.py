"""A batch's inputs and targets, copied from the token stream."""

from gpt2core.compile.jit import kernel
from gpt2core.step.builder import Builder
from gpt2core.step.grid import ROWS, Grid
from gpt2core.step.ops import Outside, Read, Tensor, Write
from gpt2core.step.signature import Int32s, Scalar, Step, TileInt, UInt16s

ROW_BYTES = 10  # read and written


@kernel
def tokens_load(
    inputs: Int32s, targets: Int32s, stream: UInt16s, row_batch: Int32s, row_time: Int32s, T: Scalar, parts: Scalar,
    micros: Scalar, micro: Scalar, step: Step, row0: TileInt, row1: TileInt,
):  # fmt: skip
    """Copy the tokens of rows [row0, row1) of a step's batch `micro`, one of `micros`, and of their successors.

    Writes:   inputs (N,), targets (N,) =, int32
    Reads:    stream (any,) uint16; row_batch, row_time (N,) int32: each row's sequence and position in it
    Maths:    batch i holds tokens [i*N, (i+1)*N] of the stream; after the last whole batch it starts over. With
              `parts`, sequence b of batch i holds tokens [i*T, (i+1)*T] of the stream's part b, one of `parts` parts
    Tiles:    disjoint row ranges are independent
    Source:   llm.c's data loader; with `parts`, Zaremba et al. 2014
    """
    last = stream.shape[0] - 1
    apart, ahead = (last // parts, T) if parts else (T, row_batch.shape[0])  # tokens between sequences, and batches
    batches = apart // T if parts else last // ahead
    start = (step * micros + micro) % batches * ahead
    for row in range(row0, row1):
        at = start + row_batch[row] * apart + row_time[row]
        inputs[row] = stream[at]
        targets[row] = stream[at + 1]


def forward(
    step: Builder, grid: Grid, *,
    inputs: Tensor, targets: Tensor, stream: Outside, row_batch: Tensor, row_time: Tensor,
    T: int, parts: int, micros: int,
) -> None:  # fmt: skip
    """Add the loading of a batch over a grid of rows; its sequences follow each other, or lie in as many parts."""
    step.op(
        "tokens", "data", tokens_load, grid, grid.cost(ROWS, 0, ROW_BYTES),
        inputs=Write(inputs, ROWS), targets=Write(targets, ROWS), stream=stream,
        row_batch=Read(row_batch), row_time=Read(row_time), T=T, parts=parts, micros=micros,
        micro=step.batch,
    )  # fmt: skip
