"""Hidden units of a recurrence in blocks. Then each time is an op, with a tile for each slice and block."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from gpt2core.gemm.sizes import PANEL
from gpt2core.step.grid import Grid, Range

GATES = 4  # i, f, g, o
UNITS = "unit0:unit1"


@dataclass(frozen=True)
class Units:
    """`count` hidden units in blocks of `each`, of which the last one may be smaller."""

    count: int
    each: int

    @property
    def is_whole(self) -> bool:
        """Whether one block has all units."""
        return self.each == self.count

    @property
    def width(self) -> int:
        """Columns of a block's products: of all gates, or gate by gate."""
        return GATES * self.count if self.is_whole else self.each

    @property
    def blocks(self) -> list[Range]:
        return [(first, min(first + self.each, self.count)) for first in range(0, self.count, self.each)]

    def gates_of(self, block: Range) -> list[Range]:
        """The columns of the gates (N, 4*H) that belong to a block."""
        if self.is_whole:
            return [(0, GATES * self.count)]
        return [(gate * self.count + block[0], gate * self.count + block[1]) for gate in range(GATES)]

    def tiles(self, chunk: Grid) -> list[Grid]:
        """The grids of a chunk's ops: of its slices, or for each time of their blocks of units.

        They have the columns unit0:unit1, the columns `gates` that belong to them, and the rows of their panels for the
        product, panel0:panel1, and for that of the reverse pass, back0:back1.
        """
        if self.is_whole:
            return [self._with_units(chunk)]
        tiles = chunk.only([i for i in range(len(chunk)) for _ in self.blocks])
        return [self._with_units(self._at(tiles, t)) for t in range(*tiles.ranges("pos0:pos1")[0])]

    def of_token(self) -> Grid:
        """A tile for each block: the columns unit0:unit1, and those of the gates, `gates`."""
        first, last = zip(*self.blocks, strict=True)
        grid = Grid(tuple(f"u{number}" for number in range(len(self.blocks)))).with_columns(unit0=first, unit1=last)
        return dataclasses.replace(grid, sets={"gates": tuple(self.gates_of(block) for block in self.blocks)})

    def _at(self, tiles: Grid, t: int) -> Grid:
        """One time of a chunk's tiles, with the rows past0:row0 of the time before and row1:next1 of the time after."""
        counts = [last - first for first, last in tiles.ranges("sample0:sample1")]
        row0 = [first + (t - pos0) * n for first, pos0, n in
                zip(tiles.column("row0"), tiles.column("pos0"), counts, strict=True)]  # fmt: skip
        row1 = [first + n for first, n in zip(row0, counts, strict=True)]
        labels = tuple(f"{label} t{t} u{i % len(self.blocks)}" for i, label in enumerate(tiles.labels))
        return dataclasses.replace(tiles, labels=labels).with_columns(
            pos0=[t] * len(tiles), pos1=[t + 1] * len(tiles), row0=row0, row1=row1,
            past0=[first - n if t else first for first, n in zip(row0, counts, strict=True)],
            next1=[min(last + n, end) for last, n, end in zip(row1, counts, tiles.column("group1"), strict=True)],
        )  # fmt: skip

    def _with_units(self, tiles: Grid) -> Grid:
        numbers = [i % len(self.blocks) for i in range(len(tiles))]
        blocks = [self.blocks[number] for number in numbers]
        panels, back = len(self.gates_of(blocks[0])) * -(-self.width // PANEL), -(-self.each // PANEL)
        more = tiles.with_columns(
            unit0=[first for first, _ in blocks], unit1=[last for _, last in blocks],
            panel0=[panels * number for number in numbers], panel1=[panels * (number + 1) for number in numbers],
            back0=[back * number for number in numbers], back1=[back * (number + 1) for number in numbers],
        )  # fmt: skip
        return dataclasses.replace(more, sets={"gates": tuple(self.gates_of(block) for block in blocks)})

    def gates(self) -> Sequence[Range]:
        """The columns of each block's products, block after block."""
        return [each for block in self.blocks for each in self.gates_of(block)]
