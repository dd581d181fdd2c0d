"""The words a step program is written in: ops over tiles, what a tile's task accesses, its kernel's operands."""

from __future__ import annotations

import enum
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from gpt2core.machine.jit import Entry


class Mode(enum.Enum):
    """How a task touches a region. Two tasks conflict unless both READ, or both REDUCE in one commutative group."""

    READ = "read"
    WRITE = "write"
    UPDATE = "update"  # reads, then writes
    REDUCE = "reduce"  # a member of a group whose members may run in any order, even at once


class Access(NamedTuple):
    """One region touched by a task; `group` tells reductions of one region apart."""

    mode: Mode
    region: int
    group: int = 0


@dataclass(frozen=True)
class Tensor:
    """An operand: a tensor by name, or its `index`-th part along the outermost dimension."""

    name: str
    index: int | None = None


@dataclass(frozen=True)
class Arena:
    """An operand: a whole arena as one float32 vector."""

    kind: str


ABSENT = Tensor("")  # an operand of no elements
Operand = Tensor | Arena | int


@dataclass(frozen=True)
class Tile:
    """One task: the integers its kernel gets, what it accesses, and the work the formulae count."""

    args: tuple[int, ...]
    accesses: tuple[Access, ...]
    flop: int
    bytes: int
    label: str


@dataclass(frozen=True)
class Op:
    """A kernel over a grid of tiles. The tiles of one op never conflict: all may run at once."""

    name: str
    phase: str
    layer: int | None
    entry: Entry
    operands: tuple[Operand, ...]
    tiles: tuple[Tile, ...]

    @property
    def label(self) -> str:
        return self.name if self.layer is None else f"{self.name}[{self.layer}]"


@dataclass
class Program:
    """One training step: ops in the order in which a single thread would run them, phase after phase."""

    ops: list[Op] = field(default_factory=list)
    regions: dict[Hashable, int] = field(default_factory=dict)

    def region(self, key: Hashable) -> int:
        return self.regions.setdefault(key, len(self.regions))

    def accesses(
        self,
        reads: Iterable[Hashable] = (),
        writes: Iterable[Hashable] = (),
        updates: Iterable[Hashable] = (),
        reduces: Iterable[Hashable] = (),
        group: int = 0,
    ) -> tuple[Access, ...]:
        """Accesses from region keys, such as ("qkv", layer, slice)."""
        by_mode = ((Mode.READ, reads), (Mode.WRITE, writes), (Mode.UPDATE, updates), (Mode.REDUCE, reduces))
        return tuple(Access(mode, self.region(key), group) for mode, keys in by_mode for key in keys)

    def add(
        self,
        name: str,
        phase: str,
        entry: Entry,
        operands: Sequence[Operand],
        tiles: Iterable[Tile],
        layer: int | None = None,
    ) -> None:
        self.ops.append(Op(name, phase, layer, entry, tuple(operands), tuple(tiles)))

    @property
    def tasks(self) -> list[tuple[Op, Tile]]:
        return [(op, tile) for op in self.ops for tile in op.tiles]
