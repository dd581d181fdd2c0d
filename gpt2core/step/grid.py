"""The tiles of an op, each with a label and named integers for kernels and accesses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpt2core.spec.errors import GraphError

BF16, F32, F64 = 2, 4, 8  # bytes
ROWS = "row0:row1"  # the rows of a tile, in most grids

Range = tuple[int, int]
Cost = tuple[int, int]  # FLOP and bytes of a tile


@dataclass(frozen=True)
class Grid:
    """The tiles of an op. `labels`, every column and every set of ranges have one entry for each tile.

    A range is named by its columns: "row0:row1" goes from one column to the other, "slot" from slot to slot + 1. For
    tiles with several ranges, `sets` lists them by name.
    """

    labels: tuple[str, ...]
    columns: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    sets: Mapping[str, tuple[Sequence[Range], ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, entries in [*self.columns.items(), *self.sets.items()]:
            if len(entries) != len(self):
                raise GraphError(f"{name} has {len(entries)} entries for {len(self)} tiles")

    def __len__(self) -> int:
        return len(self.labels)

    def with_columns(self, **columns: Sequence[int]) -> Grid:
        """The same tiles with more integers."""
        more = {name: tuple(column) for name, column in columns.items()}
        return Grid(self.labels, {**self.columns, **more}, self.sets)

    def only(self, tiles: Sequence[int]) -> Grid:
        """The tiles of these numbers."""
        return Grid(
            tuple(self.labels[i] for i in tiles),
            {name: tuple(column[i] for i in tiles) for name, column in self.columns.items()},
            {name: tuple(ranges[i] for i in tiles) for name, ranges in self.sets.items()},
        )

    def column(self, name: str) -> tuple[int, ...]:
        """Raises GraphError if there is no such column."""
        if name not in self.columns:
            raise GraphError(f"the grid has no column {name}; its columns: {', '.join(self.columns)}")
        return self.columns[name]

    def ranges(self, name: str) -> list[Range]:
        """The range of this name of each tile."""
        first, _, last = name.partition(":")
        if not last:
            return [(at, at + 1) for at in self.column(first)]
        return list(zip(self.column(first), self.column(last), strict=True))

    def every(self, names: str | tuple[str, ...]) -> list[list[Range]]:
        """The ranges of these names, of rows or of columns, of each tile."""
        found: list[list[Range]] = [[] for _ in self.labels]
        for name in (names,) if isinstance(names, str) else names:
            of_tiles = self.sets[name] if name in self.sets else [[each] for each in self.ranges(name)]
            for ranges, more in zip(found, of_tiles, strict=True):
                ranges.extend(more)
        return found

    def longest(self, name: str) -> int:
        """Length of the longest range of this name."""
        return max(last - first for first, last in self.ranges(name))

    def cost(self, name: str, flop: int, bytes_: int, tile_bytes: int = 0) -> list[Cost]:
        """Cost of each tile: FLOP and bytes for each row of its range, plus bytes for the tile."""
        return [((last - first) * flop, (last - first) * bytes_ + tile_bytes) for first, last in self.ranges(name)]


ONE_TILE = Grid(("",))
