"""A batch of pairs of sequences, copied from padded pairs: what the encoder reads, and what the decoder predicts."""

from typing import NamedTuple

from gpt2core.compile.jit import kernel
from gpt2core.spec.data import BEGIN
from gpt2core.step.builder import Builder
from gpt2core.step.grid import ROWS, Grid
from gpt2core.step.ops import Outside, Read, Tensor, Write
from gpt2core.step.signature import Int32s, Scalar, Step, TileInt, UInt16s

ROW_BYTES = 24  # read and written
PADDING = -1  # target of a position after the end of its sequence


@kernel
def first_pair(lengths, B, micros, micro, step):
    """The first pair of a step's batch `micro`, one of `micros` of B pairs; lengths (2*pairs,). After the last whole
    batch it starts over."""
    return (step * micros + micro) % (lengths.shape[0] // (2 * B)) * B


@kernel
def targets_of_step(lengths, B, micros, step):
    """The number of targets in all batches of a step."""
    count = 0
    for micro in range(micros):
        first = first_pair(lengths, B, micros, micro, step)
        for pair in range(first, first + B):
            count += lengths[2 * pair + 1]
    return count


class Batch(NamedTuple):
    """Batch `micro` of a step, one of `micros` of B pairs of T positions; the decoder's first token."""

    B: Scalar
    T: Scalar
    micros: Scalar
    micro: Scalar
    begin: Scalar


@kernel
def pairs_load(
    source: Int32s, inputs: Int32s, targets: Int32s, sources: UInt16s, answers: UInt16s, lengths: Int32s,
    row_batch: Int32s, row_time: Int32s, batch: Batch, step: Step, row0: TileInt, row1: TileInt,
):  # fmt: skip
    """Copy the tokens of rows [row0, row1) of a batch.

    Writes:   source, inputs, targets (N,) int32 =: inputs are the targets before, after `begin`; PADDING is no target
    Reads:    sources, answers (pairs*T,) uint16; lengths (2*pairs,) int32: of both sequences of each pair
    Maths:    batch i holds pairs [i*B, (i+1)*B); after the last whole batch it starts over
    Tiles:    disjoint row ranges are independent
    """
    B, T, micros, micro, begin = batch
    start = first_pair(lengths, B, micros, micro, step)
    for row in range(row0, row1):
        pair, t = start + row_batch[row], row_time[row]
        at = pair * T + t
        source[row] = sources[at]
        inputs[row] = answers[at - 1] if t else begin
        targets[row] = answers[at] if t < lengths[2 * pair + 1] else PADDING


@kernel
def lengths_load(
    source_lengths: Int32s, target_lengths: Int32s, lengths: Int32s, B: Scalar, micros: Scalar, micro: Scalar,
    step: Step, sample0: TileInt, sample1: TileInt,
):  # fmt: skip
    """Copy the lengths of samples [sample0, sample1) of a step's batch.

    Writes:   source_lengths, target_lengths (B,) int32 =
    Reads:    lengths (2*pairs,) int32
    Tiles:    disjoint ranges of samples are independent
    """
    start = first_pair(lengths, B, micros, micro, step)
    for b in range(sample0, sample1):
        source_lengths[b] = lengths[2 * (start + b)]
        target_lengths[b] = lengths[2 * (start + b) + 1]


def forward(
    step: Builder, grid: Grid, groups: Grid, *,
    source: Tensor, inputs: Tensor, targets: Tensor, source_lengths: Tensor, target_lengths: Tensor,
    B: int, T: int, micros: int,
) -> None:  # fmt: skip
    """Add the loading of a batch: its tokens over a grid of rows, its lengths over the groups of samples."""
    step.op(
        "pairs", "data", pairs_load, grid, grid.cost(ROWS, 0, ROW_BYTES),
        source=Write(source, ROWS), inputs=Write(inputs, ROWS), targets=Write(targets, ROWS),
        sources=Outside("sources"), answers=Outside("answers"), lengths=Outside("lengths"),
        row_batch=Read(Tensor("row_batch"), ROWS), row_time=Read(Tensor("row_time"), ROWS), B=B, T=T, micros=micros,
        micro=step.batch, begin=BEGIN,
    )  # fmt: skip
    samples = "sample0:sample1"
    step.op(
        "lengths", "data", lengths_load, groups, groups.cost(samples, 0, 16),
        source_lengths=Write(source_lengths, samples), target_lengths=Write(target_lengths, samples),
        lengths=Outside("lengths"), B=B, micros=micros, micro=step.batch,
    )  # fmt: skip
