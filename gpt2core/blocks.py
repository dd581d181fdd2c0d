"""How the weights are cut into blocks: some output rows of a matrix with their biases, updated by one task."""

from __future__ import annotations

from collections.abc import Hashable

from gpt2core import slicing, tensors
from gpt2core.config import TrainConfig

Block = tuple[int, int]
BLOCK_ELEMENTS = 384 * 768  # of a weight matrix in one tile: its gradient and moments fit in a core's caches
MIN_BLOCKS, MIN_BLOCK_ROWS = 8, 16  # a matrix is cut finer than that only if its rows allow it


def cut_rows(rows: int, columns: int) -> list[Block]:
    """The blocks of a (rows, columns) matrix: ranges of rows, nearly equal."""
    count = max(-(-rows * columns // BLOCK_ELEMENTS), min(MIN_BLOCKS, rows // MIN_BLOCK_ROWS), 1)
    step = -(-rows // count)
    return [(first, min(first + step, rows)) for first in range(0, rows, step)]


class WeightBlocks:
    """The blocks of every weight of one configuration, their regions, and where they lie in the arena."""

    def __init__(self, config: TrainConfig) -> None:
        arena = tensors.plan(config)["weights"]
        self.config = config
        self.shape = {spec.name: spec.shape for spec in arena.specs}
        self.start = {
            spec.name: offset // tensors.ITEMSIZE["float32"]
            for spec, offset in zip(arena.specs, arena.offsets, strict=True)
        }

    def of(self, name: str) -> list[Block]:
        """Ranges of rows of a matrix; of wpe by token slice, then one block of the positions that are not used."""
        if name != "wpe":
            return cut_rows(*self.shape[name][-2:])
        T, TS, context = self.config.seq, slicing.sizes(self.config)[1], self.config.model.context
        used = [(first, min(first + TS, T)) for first in range(0, T, TS)]
        return [*used, (T, context)] if context > T else used

    def regions(self, name: str, layer: int | None) -> list[Hashable]:
        return [(name, layer, i) for i in range(len(self.of(name)))]

    def span(self, name: str, layer: int | None, rows: Block) -> Block:
        """Where rows of a weight (of a vector: elements) lie in the arena, in elements."""
        shape = self.shape[name] if layer is None else self.shape[name][1:]
        inner = shape[1] if len(shape) == 2 else 1
        start = self.start[name] + (layer or 0) * shape[0] * inner
        return start + rows[0] * inner, start + rows[1] * inner
