"""Parts of a step program: ops over tiles, the accesses of each tile's task, and the operands of its kernel.

A tensor is named once. `Builder.op` (step/builder.py) takes a kernel, the grid of its tiles, and an operand for each of
the kernel's parameters:

    step.op(
        "layernorm", "backward", layernorm_backward, grid, grid.cost("row0:row1", 19 * C, 20 * C), layer=layer,
        dinp=Update(Tensor("residual", 3), "row0:row1"),    # these rows of the tensor's third layer
        partial=Write(Tensor("partial"), "slot"),           # row `slot` of the tile
        mean=Read(Tensor("mean", 3), "row0:row1"),
        weight=Read(Tensor("ln1w", layer)),                 # all rows
        dresidual=None,                                     # absent: an array of no elements
        ...
    )

From that follow the operands, the accesses (the memory that each tile touches), the checks of rank and dtype, and the
compiled entry. Names of columns ("row0:row1") are the grid's; the kernel's integers (`row0: TileInt`) are the same
columns, so a tile's computation and its declaration come from one table. Modes:

    Read, Write, Update    reads; overwrites; reads and overwrites
    Reduce                 several tasks may do it in any order, even at once, and the result is the same

What no task writes, because it is filled before the first step, is declared so where its tensor is (TensorSpec).

Other operands: `Outside`, an array that is in no arena; `Own`, the thread's own memory (no access: nobody else sees
it); `Product`, what computes a matrix product; an `int` for a `Scalar`. `Arena` names a whole arena as one vector: its
rows are elements. Rows are ranges of the outermost dimension, behind the layer where there is one, so every tensor has
its own rows. Columns are ranges of a row's elements: `Write(Tensor("dqkv", 3), ROWS, ("q0:q1", "k0:k1"))`. Disjoint
ones are independent.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, final

from gpt2core.spec.errors import GraphError
from gpt2core.spec.phases import PHASES
from gpt2core.step.signature import Kernel


class Mode(enum.IntEnum):
    """Access mode of a task to a region. Two tasks conflict unless both READ or both REDUCE."""

    READ = 0
    WRITE = 1
    UPDATE = 2  # reads, then writes
    REDUCE = 3  # commutes with itself, even at the same time


class Access(NamedTuple):
    """One region touched by a task."""

    mode: Mode
    region: int


class Span(NamedTuple):
    """Bytes [begin, end) of an arena; of columns: bytes [low, high) of each `stride` bytes, a row, for each pair."""

    arena: str
    begin: int
    end: int
    stride: int = 0  # 0: all bytes
    columns: tuple[tuple[int, int], ...] = ()


class Region(NamedTuple):
    """Memory that the same tasks touch in the same way, and a name for people."""

    name: str
    spans: tuple[Span, ...] = ()

    def __str__(self) -> str:
        return self.name


@final
@dataclass(frozen=True)
class Tensor:
    """A tensor by name, or one layer of it: its `layer`-th part along the outermost dimension."""

    name: str
    layer: int | None = None

    def __str__(self) -> str:
        return self.name if self.layer is None else f"{self.name}[{self.layer}]"


@dataclass(frozen=True)
class Arena:
    """A whole arena as one float32 vector."""

    kind: str

    def __str__(self) -> str:
        return f"arena {self.kind}"


@final
@dataclass(frozen=True)
class Own:
    """Memory of the thread that runs the task: part of its row of a tensor (P, ...).

    `offset` in elements from the row's start; `shape` of the part, or all of the row.
    """

    name: str
    offset: int = 0
    shape: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"own {self.name}"


@final
@dataclass(frozen=True)
class Outside:
    """An array outside the arenas, such as a mapped file, which no task writes (no access)."""

    name: str

    def __str__(self) -> str:
        return f"outside {self.name}"


@dataclass(frozen=True)
class Product:
    """What computes C (m, n) = op(A) (m, k) @ op(B) (k, n); m of the largest tile, op transposes if set. `half_a`,
    `half_b`: the matrix is bfloat16 in memory. `packed`: our own product reads B as panels that were packed before.
    """

    trans_a: int
    trans_b: int
    m: int
    n: int
    k: int
    half_a: int = 0
    half_b: int = 0
    packed: int = 0

    def __str__(self) -> str:
        halves = "".join(f" {name} bf16" for name, half in (("A", self.half_a), ("B", self.half_b)) if half)
        more = halves + (" packed" if self.packed else "")
        return f"{self.m}x{self.n}x{self.k} {'nt'[self.trans_a]}{'nt'[self.trans_b]}{more}"


@dataclass(frozen=True)
class Use:
    """Rows and columns of a tensor and the mode of access: ranges of the grid by name, or all."""

    of: Tensor | Arena
    rows: str | tuple[str, ...] = ()
    columns: str | tuple[str, ...] = ()
    mode: ClassVar[Mode]


class Read(Use):
    mode = Mode.READ


class Write(Use):
    mode = Mode.WRITE


class Update(Use):
    mode = Mode.UPDATE


class Reduce(Use):
    mode = Mode.REDUCE


def add_or_set(adds: bool, of: Tensor | Arena | Own, rows: str | tuple[str, ...] = ()) -> Use | Own:
    """The operand of a sum, which is added to the tensor or overwrites it. A thread's own memory stays as it is."""
    if isinstance(of, Own):
        return of
    return Update(of, rows) if adds else Write(of, rows)


InMemory = Tensor | Arena | Own | Outside | None
Operand = InMemory | Product | int  # in the form for a kernel; None: an array of no elements
Given = Use | Own | Outside | Product | int | None  # in the form of an op's argument


@dataclass(frozen=True)
class Call:
    """A kernel and its operands, in the order of its parameters; times are summed by name and phase. `dtypes`: of those
    of its arrays that have a choice (see signature).
    """

    name: str
    phase: str
    kernel: Kernel
    operands: tuple[Operand, ...]
    dtypes: tuple[str, ...] = ()


class Work(NamedTuple):
    """Work of one call for one tile: its kernel's integers, and FLOP and bytes by the formulae."""

    args: tuple[int, ...]
    flop: int
    bytes: int


@dataclass(frozen=True)
class Tile:
    """One task: a Work for each call of its op, run one after the other by one thread, and all that they access, each
    region once."""

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

    `beside`: so may its tiles and those of the op before it, such as those of another layer (see Program.loops).
    `filler`: off the critical path, since only updates need its result, and what it reads is overwritten much later. It
    runs when nothing else is ready.
    `poll`: of an op whose tasks only start something, such as a transfer. A task that ran is complete once this kernel,
    called with the same operands and integers, answers so; what depends on it runs after that.
    """

    layer: int | None
    calls: tuple[Call, ...]
    tiles: tuple[Tile, ...]
    micro: int = 0  # its micro-batch
    filler: bool = False
    beside: bool = False
    poll: Kernel | None = None

    @property
    def name(self) -> str:
        return "+".join(call.name for call in self.calls)

    @property
    def phase(self) -> str:
        return self.calls[0].phase

    @property
    def label(self) -> str:
        return op_label(self.name, self.layer, self.micro)


def op_label(name: str, layer: int | None, micro: int = 0) -> str:
    """Name of an op with its layer and micro-batch, for people."""
    name = name if layer is None else f"{name}[{layer}]"
    return f"{name} m{micro}" if micro else name


def merged(accesses: Iterable[Access]) -> tuple[Access, ...]:
    """Merge a task's accesses, in their order, into one for each region. A region that is written first is not read.

    Raises GraphError if a region is reduced and accessed otherwise too.
    """
    accesses = tuple(accesses)
    if len({access.region for access in accesses}) == len(accesses):
        return accesses
    by_region: dict[int, Access] = {}
    for access in accesses:
        before = by_region.setdefault(access.region, access)
        if before is access or before.mode is access.mode:
            continue
        if Mode.REDUCE in (access.mode, before.mode):
            raise GraphError(f"a task reduces region {access.region} and also accesses it in another mode")
        if before.mode is Mode.READ:
            by_region[access.region] = Access(Mode.UPDATE, access.region)
    return tuple(by_region.values())


@dataclass(frozen=True)
class Program:
    """One training step: ops in the order in which a single thread would run them, phase after phase, micro-batch after
    micro-batch. `constants`: the regions that are only read, as declared. `phases`: of its calls, in their order.
    `once`: ops that compute constants from constants, before the first step.
    """

    ops: tuple[Op, ...]
    regions: tuple[Region, ...]
    constants: frozenset[int] = frozenset()
    phases: tuple[str, ...] = PHASES
    once: Program | None = None

    @property
    def kernels(self) -> list[tuple[Kernel, tuple[str, ...]]]:
        """Each kernel of its calls, and each poll, once, with the dtypes of its choices."""
        mine = [(call.kernel, call.dtypes) for op in self.ops for call in op.calls]
        polls = [(op.poll, call.dtypes) for op in self.ops for call in op.calls if op.poll]
        return list(dict.fromkeys([*(self.once.kernels if self.once else ()), *mine, *polls]))

    @property
    def products(self) -> list[Product]:
        """Each matrix product of its calls once."""
        operands = (operand for op in self.ops for call in op.calls for operand in call.operands)
        return list(dict.fromkeys(operand for operand in operands if isinstance(operand, Product)))

    @property
    def loops(self) -> list[list[Op]]:
        """Ops side by side: all tiles of a loop may run at once, and fork-join has a barrier after each loop."""
        found: list[list[Op]] = []
        for op in self.ops:
            if op.beside:
                found[-1].append(op)
            else:
                found.append([op])
        return found

    @property
    def loop_first(self) -> list[int]:
        """Number of the first task of each loop, then the number of tasks."""
        sizes = (sum(len(op.tiles) for op in loop) for loop in self.loops)
        return list(itertools.accumulate(sizes, initial=0))

    @property
    def tasks(self) -> list[tuple[Op, Tile]]:
        return [(op, tile) for op in self.ops for tile in op.tiles]

    @property
    def calls(self) -> list[tuple[Op, Tile, Call, Work]]:
        """Every call of a kernel, in the order of the tasks."""
        return [(op, tile, *each) for op, tile in self.tasks for each in zip(op.calls, tile.work, strict=True)]
