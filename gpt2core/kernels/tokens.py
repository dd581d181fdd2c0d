"""A batch's inputs and targets, taken from the token stream."""

from gpt2core.compile.jit import STEP, entry, h1, i1, kernel, scalar


@kernel
def tokens_load(inputs, targets, stream, row_batch, row_time, T, batch, row0, row1):
    """Copy the tokens of rows [row0, row1) of a batch, counted from 0, and of their successors.

    Writes:   inputs (N,), targets (N,) =, int32
    Reads:    stream (any,) uint16; row_batch, row_time (N,) int32: each row's sequence and position in it
    Maths:    batch i holds tokens [i*N, (i+1)*N] of the stream; after the last whole batch it starts over
    Tiles:    disjoint row ranges are independent
    Source:   llm.c's data loader
    """
    N = row_batch.shape[0]
    batches = (stream.shape[0] - 1) // N
    start = (batch % batches) * N
    for row in range(row0, row1):
        at = start + row_batch[row] * T + row_time[row]
        inputs[row] = stream[at]
        targets[row] = stream[at + 1]


@entry
def tokens_load_entry(x, t, c):
    batch = c[STEP] * scalar(x, 6) + scalar(x, 7)
    tokens_load(i1(x, 0), i1(x, 1), h1(x, 2), i1(x, 3), i1(x, 4), scalar(x, 5), batch, t[0], t[1])
