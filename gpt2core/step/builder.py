"""Builds step programs: ops are declared on tensors, and get the memory that each of their tiles touches.

Declared rows and columns are bytes of an arena. Where declarations overlap, the arena is cut at their ends; pieces that
the same tasks touch in the same way are one region. So tensors, rows of different lengths, columns and whole arenas
need no convention: accesses conflict if they overlap in memory.
"""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from gpt2core.spec.errors import GraphError
from gpt2core.spec.phases import PHASES
from gpt2core.step import slicing
from gpt2core.step.grid import Cost, Grid, Range
from gpt2core.step.ops import (
    Access,
    Arena,
    Call,
    Given,
    Mode,
    Op,
    Operand,
    Outside,
    Own,
    Product,
    Program,
    Span,
    Tensor,
    Tile,
    Use,
    Work,
    merged,
    op_label,
)
from gpt2core.step.rank import Rank, Way
from gpt2core.step.regions import Regions, Touch
from gpt2core.step.signature import Array, Integer, Kernel, Kind, Multiplier, signature
from gpt2core.step.tape import Tape
from gpt2core.step.tensors import HALF, ITEMSIZE, ArenaPlan, TensorSpec, sharing


class Rows(Protocol):
    """Adds the exchange of each slice's rows of a tensor between ranks that divide matrices."""

    def __call__(
        self, step: Builder, name: str, phase: str, layer: int | None, own: Tensor, others: Tensor, way: Way = "sum", /
    ) -> None:
        """Add ops whose names begin with `name`, which send rows of `own`, and receive into `others`."""


def no_messages(
    _step: Builder, _name: str, _phase: str, _layer: int | None, _own: Tensor, _others: Tensor, _way: Way = "sum", /
) -> None:
    """Nothing: what sizes memory needs no messages."""


@dataclasses.dataclass(frozen=True)
class Draft:
    """An op with the memory that each of its tiles touches, before regions are known."""

    op: Op
    touches: tuple[tuple[Touch, ...], ...]


class Builder:
    """Collects ops on the tensors of some arenas. `micro`: the micro-batch of the ops that are added next, `tape`: what
    they leave for the reverse pass, `rank`: the rank whose step it is, among those that divide the batch in all layers.
    `matrix_rank`: the same among those that divide matrices; `rows` adds their exchange of rows. `has_fillers`: whether
    ops may be fillers, which they are not where other ranks wait for their results.

    Tensors may share memory: an arena may have several of them at one place. fusion: see spec.fields.FUSIONS.
    """

    def __init__(self, plans: Mapping[str, ArenaPlan], fusion: str = "none") -> None:
        self.micro = 0
        self.rank = Rank()
        self.matrix_rank = Rank()
        self.rows: Rows = no_messages
        self.has_fillers = True
        self.tape = Tape()
        self.fusion = fusion
        self._overwritten: dict[str, str] = {}  # tensors whose memory has other values, and whose
        self._drafts: list[Draft] = []
        self._once: list[Draft] = []
        self._adds_once = False
        self._begun = 0  # ops up to the last one that is complete only later
        self._constants: set[Span] = set()
        self._plans = plans
        self._sharing = {name: others for plan in plans.values() for name, others in sharing(plan).items()}
        self._place: dict[str, tuple[str, int, TensorSpec]] = {
            spec.name: (kind, offset, spec)
            for kind, plan in plans.items()
            for spec, offset in zip(plan.specs, plan.offsets, strict=True)
        }

    @property
    def batch(self) -> int:
        """Number of the micro-batch among those of all ranks in a step."""
        return self.micro * self.rank.total + self.rank.number

    def rename(self, old: Tensor, new: Tensor) -> None:
        """Give the values of a tensor the name of one that shares its memory, because an op computes one in place of
        the other. Raises GraphError unless they share it."""
        if self._extent(old) != self._extent(new):
            raise GraphError(f"{new} is computed in place of {old}, but they lie in different places")
        self._check_holds(old)
        self._overwrite(new)

    def _overwrite(self, tensor: Tensor) -> None:
        name = str(tensor)
        self._overwritten.pop(name, None)
        self._overwritten.update(dict.fromkeys(self._sharing.get(name, ()), name))

    def _check_holds(self, tensor: Tensor) -> None:
        """Raise GraphError if other values have overwritten a tensor's."""
        if str(tensor) in self._overwritten:
            raise GraphError(f"{tensor} is read, but {self._overwritten[str(tensor)]} has overwritten it")

    def shape(self, tensor: Tensor) -> tuple[int, ...]:
        """Shape of a tensor, or of one layer of it. Raises GraphError if there is none."""
        shape = self._spec(tensor).shape
        if tensor.layer is None or str(tensor) in self._place:
            return shape
        if not 0 <= tensor.layer < shape[0]:
            raise GraphError(f"{tensor} does not exist: {tensor.name} has {shape[0]} layers")
        return shape[1:]

    def has(self, tensor: Tensor) -> bool:
        """Whether there is a tensor."""
        return str(tensor) in self._place or tensor.name in self._place

    def is_half(self, tensor: Tensor) -> bool:
        """Whether a tensor is bfloat16."""
        return self._spec(tensor).dtype == HALF

    def itemsize(self, tensor: Tensor) -> int:
        """Bytes of an element."""
        return ITEMSIZE[self._spec(tensor).dtype]

    def _spec(self, tensor: Tensor) -> TensorSpec:
        return self._placed(tensor)[2]

    def _placed(self, tensor: Tensor) -> tuple[str, int, TensorSpec]:
        """Arena, offset and spec of a tensor: of this layer of it if layers lie apart, else of all layers."""
        found = self._place.get(str(tensor)) or self._place.get(tensor.name)
        if found is None:
            raise GraphError(f"there is no tensor {tensor.name}")
        return found

    def _extent(self, of: Tensor | Arena) -> tuple[str, int, int, int]:
        """Location of a tensor or an arena: arena, first byte, rows, bytes of a row."""
        if isinstance(of, Arena):
            return of.kind, 0, self._plans[of.kind].bytes // ITEMSIZE["float32"], ITEMSIZE["float32"]
        rows, *inner = self.shape(of)
        kind, offset, spec = self._placed(of)
        row_bytes = math.prod(inner) * ITEMSIZE[spec.dtype]
        layer = 0 if str(of) in self._place else of.layer or 0
        return kind, offset + layer * rows * row_bytes, rows, row_bytes

    def spans(
        self, of: Tensor | Arena, ranges: Iterable[Range], columns: Sequence[Range] | None = None
    ) -> list[Span]:
        """Where ranges of rows of a tensor (of an arena: of float32 elements) lie, or ranges of columns of these rows;
        empty ones are left out.

        Raises GraphError if there are no such rows or columns.
        """
        kind, offset, rows, row_bytes = self._extent(of)
        itemsize = self.itemsize(of) if isinstance(of, Tensor) else ITEMSIZE["float32"]
        of_row: tuple[Range, ...] = ((0, row_bytes),)
        if columns is not None:
            width = row_bytes // itemsize
            for first, last in columns:
                if not 0 <= first <= last <= width:
                    raise GraphError(f"columns {first}:{last} of {of} do not exist: it has {width}")
            of_row = tuple((first * itemsize, last * itemsize) for first, last in columns if first < last)
        whole = of_row == ((0, row_bytes),)
        found = []
        for first, last in ranges:
            if not 0 <= first <= last <= rows:
                raise GraphError(f"rows {first}:{last} of {of} do not exist: it has {rows}")
            if first < last and of_row:
                ends = offset + first * row_bytes, offset + last * row_bytes
                found.append(Span(kind, *ends) if whole else Span(kind, *ends, row_bytes, of_row))
        return found

    def blocks(self, matrix: Tensor) -> Sequence[Range]:
        """The blocks of rows in which a matrix's gradient is computed and the matrix is updated."""
        rows, columns = self.shape(matrix)
        return slicing.cut_rows(rows, columns)

    def elements(self, of: Tensor, rows: Range | None = None) -> Range:
        """Range of a tensor's rows in its arena, in elements of four bytes; without rows all of it."""
        (span,) = self.spans(of, [rows or (0, self.shape(of)[0])])
        return span.begin // ITEMSIZE["float32"], span.end // ITEMSIZE["float32"]

    def op(
        self,
        name: str,
        phase: str,
        kernel: Kernel,
        grid: Grid,
        cost: Sequence[Cost],
        /,
        layer: int | None = None,
        filler: bool = False,
        **given: Given,
    ) -> None:
        """Add an op: a kernel over a grid, with an operand for each of its parameters (see ops).

        Raises TypeError for operands that do not fit the kernel's parameters, GraphError for unknown tensors, rows or
        columns.
        """
        label = op_label(name, layer, self.micro)
        known = signature(kernel)
        operands = known.operands
        self._follow(given.values())
        if operands.keys() != given.keys():
            missing, more = operands.keys() - given.keys(), given.keys() - operands.keys()
            raise TypeError(f"{label}: {known.name} takes {sorted(operands)}; missing {missing}, unknown {more}")
        columns = [grid.column(column) for column in known.integers]
        if known.takes_all_integers:
            columns = list(grid.columns.values())
        touches = self._touches(grid, given.values())
        tiles = [
            Tile((Work(tuple(column[i] for column in columns), *cost[i]),), (), text)
            for i, text in enumerate(grid.labels)
        ]
        bare = tuple(_operand(f"{label}: {known.name}'s {key}", operands[key], given[key]) for key in operands)
        dtypes = tuple(self._dtype(bare[list(operands).index(key)]) for key in known.choices)
        known.of(dtypes)
        filler = filler and self.has_fillers
        op = Op(layer, (Call(name, phase, kernel, bare, dtypes),), tuple(tiles), self.micro, filler)
        (self._once if self._adds_once else self._drafts).append(Draft(op, touches))

    def _dtype(self, operand: Operand) -> str:
        """Dtype of an array; float32 if it is absent."""
        if isinstance(operand, Own):
            operand = Tensor(operand.name)
        return self._spec(operand).dtype if isinstance(operand, Tensor) else "float32"

    def _follow(self, given: Iterable[Given]) -> None:
        """Note what an op overwrites. Raises GraphError if it reads what has been overwritten."""
        named = [(use.mode, use.of) for use in given if isinstance(use, Use) and isinstance(use.of, Tensor)]
        for mode, tensor in named:
            if mode in (Mode.READ, Mode.UPDATE):
                self._check_holds(tensor)
        for mode, tensor in named:
            if mode is not Mode.READ:
                self._overwrite(tensor)

    def is_constant(self, of: Tensor | Arena) -> bool:
        """Whether no task writes a tensor, or any of an arena."""
        if isinstance(of, Arena):
            return all(spec.constant for spec in self._plans[of.kind].specs)
        return self._spec(of).constant

    def _touches(self, grid: Grid, given: Iterable[Given]) -> tuple[tuple[Touch, ...], ...]:
        """Accesses of each tile."""
        tiles: list[list[Touch]] = [[] for _ in grid.labels]
        for use in given:
            if not isinstance(use, Use):
                continue
            constant = self.is_constant(use.of)
            if constant and use.mode is not Mode.READ and not self._adds_once:
                raise GraphError(f"a task writes {use.of}, which is declared constant")
            if self._adds_once and not constant:
                raise GraphError(f"a task that runs once uses {use.of}, which is not declared constant")
            all_rows = [(0, self._extent(use.of)[2])]
            whole = [] if use.rows or use.columns else self.spans(use.of, all_rows)
            for tile, rows, columns in zip(tiles, grid.every(use.rows), grid.every(use.columns), strict=True):
                given_rows, given_columns = rows if use.rows else all_rows, columns if use.columns else None
                spans = whole or self.spans(use.of, given_rows, given_columns)
                tile += [(use.mode, span) for span in spans]
                if constant and not self._adds_once:
                    self._constants.update(spans)
        return tuple(map(tuple, tiles))

    @property
    def count(self) -> int:
        """Number of ops."""
        return len(self._drafts)

    @contextlib.contextmanager
    def fused(self) -> Iterator[None]:
        """Fuse the ops that are added inside, unless every kernel is an op of its own (fusion "none"); after an op that
        is complete only later, those behind it."""
        first = self.count
        yield
        first = max(first, self._begun)
        if self.fusion != "none" and self.count > first + 1:
            self.fuse(self.count - first)

    @contextlib.contextmanager
    def once_if_constant(self, tensor: Tensor) -> Iterator[None]:
        """Let the ops that are added inside run once, before the first step, if the tensor that they compute is
        declared constant. They may use nothing but constants."""
        self._adds_once = self.is_constant(tensor)
        yield
        self._adds_once = False

    @contextlib.contextmanager
    def beside(self) -> Iterator[None]:
        """Let the ops that are added inside run side by side, as one op whose tiles are in several layers."""
        first = len(self._drafts)
        yield
        for number in range(first + 1, len(self._drafts)):
            draft = self._drafts[number]
            self._drafts[number] = dataclasses.replace(draft, op=dataclasses.replace(draft.op, beside=True))

    def complete_when(self, poll: Kernel) -> None:
        """Let the tasks of the last op be complete only when `poll` answers so (see ops.Op). Their accesses are those
        of what they start too. Raises TypeError unless it takes the parameters of the op's kernel and is a poll.
        """
        *_, draft = self._drafts
        (call,) = draft.op.calls
        known, asked = signature(call.kernel), signature(poll)
        if asked.kinds != known.kinds or not asked.polls:
            raise TypeError(
                f"{draft.op.label}: {asked.name} should take the parameters of {known.name} and return Complete"
            )
        self._drafts[-1] = dataclasses.replace(draft, op=dataclasses.replace(draft.op, poll=poll))
        self._begun = self.count

    def join(self) -> None:
        """Fuse the last op with the one before it, unless every kernel is an op of its own."""
        if self.fusion != "none":
            self.fuse(2)

    def fuse(self, count: int) -> None:
        """Fuse the last `count` ops into one, whose tile i runs their tiles i in order."""
        *self._drafts, drafts = [*self._drafts[:-count], self._drafts[-count:]]
        parts = [draft.op for draft in drafts]
        if any(op.poll for op in parts):
            raise GraphError(f"{parts[0].label} cannot be fused: it or an op after it is complete only later")
        tiles = [
            Tile(tuple(work for tile in together for work in tile.work), (), together[0].label)
            for together in zip(*(op.tiles for op in parts), strict=True)
        ]
        touches = [sum(together, ()) for together in zip(*(draft.touches for draft in drafts), strict=True)]
        calls = tuple(call for op in parts for call in op.calls)
        op = Op(parts[0].layer, calls, tuple(tiles), self.micro, all(op.filler for op in parts))
        self._drafts.append(Draft(op, tuple(touches)))

    def build(self, phases: tuple[str, ...] = PHASES) -> Program:
        """The program, with the accesses of every tile. Its calls are of some of the phases."""
        once = self._program(self._once, set(), phases) if self._once else None
        return self._program(self._drafts, self._constants, phases, once)

    def _program(
        self, drafts: Sequence[Draft], constant: set[Span], phases: tuple[str, ...], once: Program | None = None
    ) -> Program:
        tasks = [touches for draft in drafts for touches in draft.touches]
        regions = Regions(tasks, constant, self._name)
        of_touch: dict[Touch, list[Access]] = {}
        for mode, span in dict.fromkeys(touch for touches in tasks for touch in touches):
            of_touch[mode, span] = [Access(mode, number) for number in regions.of(span)]
        ops = []
        for draft in drafts:
            tiles = tuple(
                Tile(tile.work, merged(access for touch in touches for access in of_touch[touch]), tile.label)
                for tile, touches in zip(draft.op.tiles, draft.touches, strict=True)
            )
            ops.append(dataclasses.replace(draft.op, tiles=tiles))
        constants = frozenset(number for span in constant for number in regions.of(span))
        return Program(tuple(ops), regions.regions, constants, phases, once)

    def _name(self, piece: Span) -> str:
        """Describe the contents of a piece of memory."""
        plan = self._plans[piece.arena]
        at = bisect.bisect(plan.offsets, piece.begin) - 1
        while plan.offsets[at] + plan.specs[at].bytes <= piece.begin:  # a short tensor in the memory of a longer one
            at -= 1
        spec, offset = plan.specs[at], piece.begin - plan.offsets[at]
        part, rest = divmod(offset, spec.bytes // spec.shape[0])
        ends = [f"{low // ITEMSIZE[spec.dtype]}:{high // ITEMSIZE[spec.dtype]}" for low, high in piece.columns]
        columns = f" columns {', '.join(ends)}" if ends else ""
        return f"{spec.name}[{part}]{f' from byte {rest}' if rest else ''}{columns}"


def _operand(what: str, kind: Kind, given: Given) -> Operand:
    """Convert an op's argument for the kernel. Raises TypeError if the parameter does not accept it."""
    fits = {
        Array: given is None or isinstance(given, Use | Own | Outside),
        Multiplier: isinstance(given, Product),
        Integer: isinstance(given, int),
    }[type(kind)]
    if not fits or (isinstance(given, Own) and isinstance(kind, Array) and not kind.own):
        raise TypeError(f"{what} takes {kind}, not {given}")
    return given.of if isinstance(given, Use) else given
