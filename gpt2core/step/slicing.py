"""Cuts work: weight matrices into blocks of rows, and the batch into slices of samples by positions; and locates the
slices' rows.

A batch has B samples of T positions: sequences of tokens, or images of one position. `batch_slice` samples by
`token_slice` positions make a slice. A slice's rows are contiguous, sample by sample or, for a recurrence, position by
position; the slices of a group of samples follow each other in time, group after group. So every op on a slice is one
call on consecutive rows, whatever the slice's shape and however many rows a tensor has for each position.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

from gpt2core.spec.config import TrainConfig
from gpt2core.step.grid import Grid

BLOCK_ELEMENTS = 384 * 768  # of a weight matrix per tile: its gradient and moments fit in a core's caches
MIN_BLOCKS, MIN_BLOCK_ROWS = 8, 16  # fewer blocks only where blocks would have fewer rows
AUTO_ROWS = (256, 128, 64, 32, 16)  # candidate sizes of a slice in tokens: docs/decisions/0008-automatic-slices.md
HALVED = 1.15  # cost of a token relative to its cost in a slice twice as long
AUTO_THREADS = 2  # runs on one thread, or on more threads than cores, get the slices of two threads and stay comparable


@dataclass(frozen=True)
class Slice:
    """Positions [pos0, pos1) of samples [sample0, sample1), in rows [row0, row1) where each has one row.

    `peers`: the slices of its group of samples, in time.
    """

    index: int
    sample0: int
    sample1: int
    pos0: int
    pos1: int
    row0: int
    row1: int
    peers: tuple[int, ...]

    @property
    def rows(self) -> int:
        return self.row1 - self.row0


def sizes(config: TrainConfig, threads: int | None = None) -> tuple[int, int]:
    """(samples, positions) of a slice. Automatic sizes are the model's own, or minimise the busiest thread's estimated
    time, with slices distributed evenly over `threads`, by default the config's; of ranks that divide the batch those
    of a rank's part.
    """
    config = config.batch_part
    requested = config.threads if threads is None else threads
    threads = AUTO_THREADS if config.allow_oversubscription else max(requested, AUTO_THREADS)
    own = config.model.slices(config.batch, config.seq, threads, (config.batch_slice, config.token_slice))
    if own:
        return own

    def busiest(slice_: tuple[int, int]) -> float:
        rows = slice_[0] * slice_[1]
        return -(-_count(config, slice_) // threads) * rows * math.pow(HALVED, -math.log2(rows))

    return min((_of_rows(config, rows) for rows in AUTO_ROWS), key=busiest)


def _of_rows(config: TrainConfig, rows: int) -> tuple[int, int]:
    """Nearly equal slices of at most `rows` tokens, as long as the sequence allows."""
    tokens = config.token_slice or _alike(config.seq, rows // (config.batch_slice or 1))
    return config.batch_slice or _alike(config.batch, rows // tokens), tokens


def _alike(whole: int, most: int) -> int:
    """Size of the parts if `whole` is cut into the fewest nearly equal parts of at most `most`."""
    return -(-whole // -(-whole // max(1, most)))


def _count(config: TrainConfig, slice_: tuple[int, int]) -> int:
    return -(-config.batch // slice_[0]) * -(-config.seq // slice_[1])


def resolve(config: TrainConfig) -> TrainConfig:
    """The config with automatic slice sizes replaced by numbers."""
    batch_slice, token_slice = sizes(config)
    return dataclasses.replace(config, batch_slice=batch_slice, token_slice=token_slice)


def count(config: TrainConfig) -> int:
    """Number of slices, without cutting."""
    return _count(config, sizes(config))


def cut(config: TrainConfig) -> list[Slice]:
    """Every slice, in the order of its rows. The last of a sample or of the batch may be smaller."""
    B, T, (BS, TS) = config.batch, config.seq, sizes(config)
    slices: list[Slice] = []
    row = 0
    for sample0 in range(0, B, BS):
        sample1 = min(sample0 + BS, B)
        starts = range(0, T, TS)
        peers = tuple(range(len(slices), len(slices) + len(starts)))
        for index, pos0 in zip(peers, starts, strict=True):
            pos1 = min(pos0 + TS, T)
            rows = (sample1 - sample0) * (pos1 - pos0)
            slices.append(Slice(index, sample0, sample1, pos0, pos1, row, row + rows, peers))
            row += rows
    return slices


def grid(slices: Sequence[Slice], row: int = 1, **others: int) -> Grid:
    """A tile for each slice: its samples, its positions, its rows row0:row1, and its group's rows group0:group1.

    `row`: number of rows of each position in the op's tensors. `others`: the same for tensors with other rows, by the
    name of their columns: `inp=4` gives the rows inp0:inp1.
    """
    ends = {s.index: (s.row0, s.row1) for s in slices}
    rows = {f"{name}{end}": [n * ends[s.index][end] for s in slices]
            for name, n in {"row": row, **others}.items() for end in (0, 1)}  # fmt: skip
    return Grid(tuple(f"s{s.index}" for s in slices)).with_columns(
        sample0=[s.sample0 for s in slices], sample1=[s.sample1 for s in slices],
        pos0=[s.pos0 for s in slices], pos1=[s.pos1 for s in slices],
        group0=[row * ends[s.peers[0]][0] for s in slices], group1=[row * ends[s.peers[-1]][1] for s in slices], **rows,
    )  # fmt: skip


def chunks(slices: Sequence[Slice]) -> list[Grid]:
    """The chunks of time in order, each as a grid of the slices that begin at the same position.

    A recurrence is an op for each: its tiles depend on those of the previous chunk, in the rows group0:row0, or of the
    next one, in the rows row1:group1.
    """
    every, starts = grid(slices), sorted({s.pos0 for s in slices})
    return [every.only([s.index for s in slices if s.pos0 == start]) for start in starts]


def row_tables(config: TrainConfig, time_major: bool = False) -> tuple[list[int], list[int]]:
    """For every row its sample in the batch and its position in the sample. Within a slice the rows follow each other
    sample by sample, or with `time_major` position by position; then so do the rows of a group of samples.
    """
    sample: list[int] = []
    position: list[int] = []
    for part in cut(config):
        samples, positions = range(part.sample0, part.sample1), range(part.pos0, part.pos1)
        if time_major:
            sample.extend(b for _ in positions for b in samples)
            position.extend(t for t in positions for _ in samples)
        else:
            sample.extend(b for b in samples for _ in positions)
            position.extend(t for _ in samples for t in positions)
    return sample, position


def block_rows(rows: int, columns: int) -> int:
    """Rows of a block of a (rows, columns) matrix."""
    count = max(-(-rows * columns // BLOCK_ELEMENTS), min(MIN_BLOCKS, rows // MIN_BLOCK_ROWS), 1)
    return -(-rows // count)


def block_count(rows: int, columns: int) -> int:
    """Number of blocks of a (rows, columns) matrix, without cutting."""
    return -(-rows // block_rows(rows, columns))


def cut_rows(rows: int, columns: int) -> list[tuple[int, int]]:
    """The blocks of a (rows, columns) matrix: ranges of rows, nearly equal."""
    step = block_rows(rows, columns)
    return [(first, min(first + step, rows)) for first in range(0, rows, step)]
