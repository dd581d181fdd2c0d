"""How work is cut: weight matrices into blocks of rows, the batch into slices of `batch_slice` sequences by
`token_slice` tokens; and where the slices' rows lie.

The rows of one slice are contiguous, sequence by sequence; the slices of one group of sequences follow each other in
time, group after group. So every op on a slice is one call on consecutive rows, whatever the slice's shape.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from gpt2core.config import TrainConfig

BLOCK_ELEMENTS = 384 * 768  # of a weight matrix in one tile: its gradient and moments fit in a core's caches
MIN_BLOCKS, MIN_BLOCK_ROWS = 8, 16  # a matrix is cut finer than that only if its rows allow it
AUTO_ROWS = 128  # tokens of a slice chosen automatically: docs/decisions/0008-automatic-slices.md


@dataclass(frozen=True)
class Slice:
    """Tokens [time0, time1) of sequences [first, last), in rows [row0, row1). `peers`: its group's slices, in time."""

    index: int
    first: int
    last: int
    time0: int
    time1: int
    row0: int
    row1: int
    peers: tuple[int, ...]

    @property
    def rows(self) -> int:
        return self.row1 - self.row0


def sizes(config: TrainConfig) -> tuple[int, int]:
    """(sequences, tokens) of a slice. Automatic sizes do not depend on threads or scheduler."""
    token_slice = config.token_slice or min(config.seq, AUTO_ROWS)
    return config.batch_slice or max(1, min(config.batch, AUTO_ROWS // token_slice)), token_slice


def resolve(config: TrainConfig) -> TrainConfig:
    """The config with automatic slice sizes replaced by numbers."""
    batch_slice, token_slice = sizes(config)
    return dataclasses.replace(config, batch_slice=batch_slice, token_slice=token_slice)


def count(config: TrainConfig) -> int:
    """How many slices there are, without cutting."""
    batch_slice, token_slice = sizes(config)
    return -(-config.batch // batch_slice) * -(-config.seq // token_slice)


def cut(config: TrainConfig) -> list[Slice]:
    """Every slice, in the order of its rows. The last of a sequence or of the batch may be smaller."""
    B, T, (BS, TS) = config.batch, config.seq, sizes(config)
    slices: list[Slice] = []
    row = 0
    for first in range(0, B, BS):
        last = min(first + BS, B)
        starts = range(0, T, TS)
        peers = tuple(range(len(slices), len(slices) + len(starts)))
        for index, time0 in zip(peers, starts, strict=True):
            time1 = min(time0 + TS, T)
            rows = (last - first) * (time1 - time0)
            slices.append(Slice(index, first, last, time0, time1, row, row + rows, peers))
            row += rows
    return slices


def row_tables(config: TrainConfig) -> tuple[list[int], list[int]]:
    """For every row its sequence in the batch and its position in the sequence."""
    batch: list[int] = []
    time: list[int] = []
    for part in cut(config):
        for b in range(part.first, part.last):
            batch.extend([b] * (part.time1 - part.time0))
            time.extend(range(part.time0, part.time1))
    return batch, time


def block_rows(rows: int, columns: int) -> int:
    """Rows of a block of a (rows, columns) matrix."""
    count = max(-(-rows * columns // BLOCK_ELEMENTS), min(MIN_BLOCKS, rows // MIN_BLOCK_ROWS), 1)
    return -(-rows // count)


def cut_rows(rows: int, columns: int) -> list[tuple[int, int]]:
    """The blocks of a (rows, columns) matrix: ranges of rows, nearly equal."""
    step = block_rows(rows, columns)
    return [(first, min(first + step, rows)) for first in range(0, rows, step)]
