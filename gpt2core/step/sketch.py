"""What follows from a step's ops without kernels and tiles: lives of tensors, which op uses each first and last, in
program order; and the exchanges of rows between ranks."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from gpt2core.spec.errors import GraphError
from gpt2core.step.builder import Builder
from gpt2core.step.grid import Cost, Grid, Range
from gpt2core.step.ops import Given, Mode, Tensor, Use
from gpt2core.step.rank import Way
from gpt2core.step.signature import Kernel
from gpt2core.step.tensors import ArenaPlan

READS = (Mode.READ, Mode.UPDATE)


class Life(NamedTuple):
    """Tensors that follow each other in the same memory, since ops compute one in place of the other, and the numbers
    of the first and of the last op that uses one."""

    tensors: tuple[Tensor, ...]
    first: int
    last: int


class Uses(NamedTuple):
    """What an op uses, reads first, and how it is ordered."""

    of: list[tuple[Mode, Tensor]]
    layer: int | None
    filler: bool


class Sketch(Builder):
    """Follows the ops of one micro-batch. Fused ops, and ops side by side, count as one, since their tiles run at the
    same time. `exchanged`: number of exchanges by kind, width of a row and way, in the order in which each begins."""

    def __init__(self, plans: Mapping[str, ArenaPlan], fusion: str) -> None:
        super().__init__(plans, fusion)
        self._ops: list[Uses] = []
        self._before: dict[Tensor, Tensor] = {}  # in whose place a tensor is computed
        self.exchanged: Counter[tuple[str, int, Way]] = Counter()
        self.rows = self._note_rows

    def op(
        self, name: str, phase: str, kernel: Kernel, grid: Grid, cost: Sequence[Cost], /,  # noqa: ARG002
        layer: int | None = None, filler: bool = False, **given: Given,
    ) -> None:  # fmt: skip
        uses = [(use.mode, use.of) for use in given.values() if isinstance(use, Use) and isinstance(use.of, Tensor)]
        self._ops.append(Uses(sorted(uses, key=lambda use: use[0] not in READS), layer, filler))

    def _note_rows(
        self, _step: Builder, name: str, _phase: str, _layer: int | None, own: Tensor, _others: Tensor,
        way: Way = "sum", /,
    ) -> None:  # fmt: skip
        self.exchanged[name, self.shape(own)[1], way] += 1

    def complete_when(self, poll: Kernel) -> None:
        """Nothing: lives follow from the accesses."""

    def blocks(self, matrix: Tensor) -> Sequence[Range]:
        """One, since lives do not depend on blocks, of which a huge matrix has 100,000."""
        return [(0, self.shape(matrix)[0])]

    def rename(self, old: Tensor, new: Tensor) -> None:
        self._before[new] = old

    @property
    def count(self) -> int:
        return len(self._ops)

    @contextlib.contextmanager
    def once_if_constant(self, tensor: Tensor) -> Iterator[None]:  # noqa: ARG002
        yield

    @contextlib.contextmanager
    def beside(self) -> Iterator[None]:
        first = self.count
        yield
        self.fuse(self.count - first)

    def fuse(self, count: int) -> None:
        *self._ops, parts = [*self._ops[:-count], self._ops[-count:]]
        of = [use for part in parts for use in part.of]
        self._ops.append(Uses(of, parts[0].layer, all(part.filler for part in parts)))

    def lives(self, late: int = 0) -> list[Life]:
        """In the order of their first uses. What is read before it is written lives through all steps. late: number of
        layers by which fillers may lag behind, so that what they read lives longer."""
        found: dict[Tensor, Life] = {}
        end = len(self._ops)
        ends = {uses.layer: number for number, uses in enumerate(self._ops)}
        for number, uses in enumerate(self._ops):
            last = number
            if uses.filler and uses.layer is not None:
                last = max(number, ends.get(uses.layer - late, end))
            for mode, tensor in uses.of:
                first = tensor
                while first in self._before:
                    first = self._before[first]
                new = Life((first,), 0, end) if mode in READS else Life((first,), number, number)
                life = found.setdefault(first, new)
                tensors = life.tensors if tensor in life.tensors else (*life.tensors, tensor)
                found[first] = Life(tensors, life.first, max(life.last, last))
        for tensor in self._before:  # also those that no op reads
            first = tensor
            while first in self._before:
                first = self._before[first]
            if first in found and tensor not in found[first].tensors:
                life = found[first]
                found[first] = Life((*life.tensors, tensor), life.first, life.last)
        named = {(tensor.name, tensor.layer is None) for life in found.values() for tensor in life.tensors}
        for name, whole in named:
            if whole and (name, False) in named:
                raise GraphError(f"{name} is used as a whole and by layers, so its memory is not known")
        return list(found.values())
