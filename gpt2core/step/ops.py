"""The words a step program is written in: ops over tiles, what a tile's task accesses, its kernel's operands."""

from __future__ import annotations

import enum
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from gpt2core.compile.jit import Entry
from gpt2core.spec.errors import GraphError


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
class Own:
    """An operand: what belongs to the thread that runs the task, part of its row of a tensor (P, ...).

    `offset` in elements from the row's start; `shape` of the part, or all of the row.
    """

    name: str
    offset: int = 0
    shape: tuple[int, ...] = ()


@dataclass(frozen=True)
class Arena:
    """An operand: a whole arena as one float32 vector."""

    kind: str


@dataclass(frozen=True)
class Product:
    """An operand: what computes C (m, n) = op(A) (m, k) @ op(B) (k, n); m of the largest tile, op transposes if set."""

    trans_a: int
    trans_b: int
    m: int
    n: int
    k: int

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k} {'nt'[self.trans_a]}{'nt'[self.trans_b]}"


ABSENT = Tensor("")  # an operand of no elements
InMemory = Tensor | Own | Arena | int
Operand = InMemory | Product


@dataclass(frozen=True)
class Call:
    """A kernel and the tensors it works on; times are summed by its name and phase."""

    name: str
    phase: str
    entry: Entry
    operands: tuple[Operand, ...]


class Work(NamedTuple):
    """What one call does for one tile: the integers its kernel gets, and the work the formulae count."""

    args: tuple[int, ...]
    flop: int
    bytes: int


@dataclass(frozen=True)
class Tile:
    """One task: a Work for each call of its op, run one after the other by one thread, and all that they access."""

    work: tuple[Work, ...]
    accesses: tuple[Access, ...]
    label: str

    @property
    def flop(self) -> int:
        return sum(work.flop for work in self.work)

    @property
    def bytes(self) -> int:
        return sum(work.bytes for work in self.work)


@dataclass(frozen=True)
class Op:
    """A kernel, or several fused, over a grid of tiles. The tiles of one op never conflict: all may run at once.

    `filler`: off the long chains, as only updates need what it gives; to be run where nothing else is ready.
    """

    layer: int | None
    calls: tuple[Call, ...]
    tiles: tuple[Tile, ...]
    micro: int = 0  # the micro-batch that it is part of
    filler: bool = False

    @property
    def name(self) -> str:
        return "+".join(call.name for call in self.calls)

    @property
    def phase(self) -> str:
        return self.calls[0].phase

    @property
    def label(self) -> str:
        name = self.name if self.layer is None else f"{self.name}[{self.layer}]"
        return f"{name} m{self.micro}" if self.micro else name


def merged(accesses: Iterable[Access]) -> tuple[Access, ...]:
    """One access a region, of a task's accesses in their order: what is written first needs nothing from before.

    Raises GraphError if a region is reduced and accessed otherwise too.
    """
    by_region: dict[int, Access] = {}
    for access in accesses:
        before = by_region.setdefault(access.region, access)
        if access != before and Mode.REDUCE in (access.mode, before.mode):
            raise GraphError(f"a task reduces region {access.region} and accesses it otherwise too")
        if before.mode is Mode.READ and access.mode is not Mode.READ:
            by_region[access.region] = Access(Mode.UPDATE, access.region)
    return tuple(by_region.values())


@dataclass
class Program:
    """One training step: ops in the order in which a single thread would run them, phase after phase, micro-batch after
    micro-batch. `micro`: to which what is added next belongs.
    """

    ops: list[Op] = field(default_factory=list)
    regions: dict[Hashable, int] = field(default_factory=dict)
    micro: int = 0

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
        filler: bool = False,
    ) -> None:
        self.ops.append(Op(layer, (Call(name, phase, entry, tuple(operands)),), tuple(tiles), self.micro, filler))

    def fuse(self, count: int) -> None:
        """Make one op of the last `count`: a tile runs what their tiles of the same place do, in their order."""
        *self.ops, parts = [*self.ops[:-count], self.ops[-count:]]
        tiles = [
            Tile(
                tuple(work for tile in together for work in tile.work),
                merged(access for tile in together for access in tile.accesses),
                together[0].label,
            )
            for together in zip(*(op.tiles for op in parts), strict=True)
        ]
        calls = tuple(call for op in parts for call in op.calls)
        self.ops.append(Op(parts[0].layer, calls, tuple(tiles), self.micro, all(op.filler for op in parts)))

    @property
    def tasks(self) -> list[tuple[Op, Tile]]:
        return [(op, tile) for op in self.ops for tile in op.tiles]

    @property
    def calls(self) -> list[tuple[Op, Tile, Call, Work]]:
        """Every call of a kernel, in the order of the tasks."""
        return [(op, tile, *each) for op, tile in self.tasks for each in zip(op.calls, tile.work, strict=True)]
