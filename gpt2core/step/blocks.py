"""How the weights are cut into blocks: some output rows of a matrix with their biases, updated by one task."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from gpt2core.step import slicing
from gpt2core.step.tensors import ITEMSIZE, TensorSpec, plan_arena

Block = tuple[int, int]


class WeightBlocks:
    """The blocks of every weight, their regions, and where they lie in the arena."""

    def __init__(self, weights: Sequence[TensorSpec]) -> None:
        arena = plan_arena(weights)
        self.shape = {spec.name: spec.shape for spec in arena.specs}
        self.start = {
            spec.name: offset // ITEMSIZE["float32"]
            for spec, offset in zip(arena.specs, arena.offsets, strict=True)
        }

    def of(self, name: str) -> list[Block]:
        """Ranges of rows of a matrix."""
        return slicing.cut_rows(*self.shape[name][-2:])

    def largest(self, name: str) -> tuple[int, int]:
        """(rows, columns) of a matrix's largest block."""
        rows, columns = self.shape[name][-2:]
        return slicing.block_rows(rows, columns), columns

    def regions(self, name: str, layer: int | None) -> list[Hashable]:
        return [(name, layer, i) for i in range(len(self.of(name)))]

    def span(self, name: str, layer: int | None, rows: Block) -> Block:
        """Where rows of a weight (of a vector: elements) lie in the arena, in elements."""
        shape = self.shape[name] if layer is None else self.shape[name][1:]
        inner = shape[1] if len(shape) == 2 else 1
        start = self.start[name] + (layer or 0) * shape[0] * inner
        return start + rows[0] * inner, start + rows[1] * inner
