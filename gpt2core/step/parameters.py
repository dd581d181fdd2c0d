"""Parameters: the parts of the weights, each updated by one task, and the locations of their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from gpt2core.step import slicing
from gpt2core.step.grid import Grid, Range
from gpt2core.step.ops import Arena, Own, Tensor
from gpt2core.step.signature import TileInt

if TYPE_CHECKING:
    from gpt2core.step.builder import Builder

WEIGHTS, GRADIENTS = Arena("weights"), Arena("gradients")
BLOCK = "out0:out1"  # the rows of a block, in a grid of blocks
BOTH = ("a0:a1", "b0:b1")  # the elements of a parameter, in the grid of parameters
KEPT = "kept"  # those of the optimizer's state of a parameter, in the same grid


class Elements(NamedTuple):
    """A tile of the grid of parameters: elements [a0, a1) and [b0, b1), either of which may be empty, and where their
    gradients and their optimizer's state begin."""

    a0: TileInt
    a1: TileInt
    b0: TileInt
    b1: TileInt
    at_a: TileInt
    at_b: TileInt
    kept_a: TileInt
    kept_b: TileInt


@dataclass(frozen=True)
class Parameter:
    """One or two spans of the weights arena, in elements: rows of a matrix and of its bias, or two vectors.

    `second_at`: where the second span's gradient begins in a thread's own gradients; the first's begins at 0. The
    gradients arena is laid out as the weights are. `kept`: where each span's optimizer state begins, if it is not laid
    out so.
    """

    label: str
    spans: tuple[Range, ...]
    second_at: int
    kept: tuple[int, ...] | None = None

    @property
    def size(self) -> int:
        return sum(last - first for first, last in self.spans)

    @property
    def state(self) -> list[Range]:
        """Elements of each span's optimizer state."""
        begins = self.kept or [first for first, _ in self.spans]
        return [(at, at + last - first) for at, (first, last) in zip(begins, self.spans, strict=True)]


@dataclass(frozen=True)
class Destination:
    """Destination of a parameter's gradient: the gradients arena, or the thread's own memory, which the same task
    reads. `adds`: to the gradient that is there.
    """

    own: bool
    adds: bool = False

    @property
    def whole(self) -> Arena | Own:
        return Own("gradient") if self.own else GRADIENTS

    def of(self, step: Builder, weight: Tensor, bias: Tensor | None = None) -> tuple[Tensor | Own, Tensor | Own | None]:
        """Destination of the gradients of a matrix, or of one of its blocks, and of its bias."""
        if not self.own:
            return Tensor("d" + weight.name, weight.layer), bias and Tensor("d" + bias.name, bias.layer)
        rows, columns = step.shape(weight)
        rows = slicing.block_rows(rows, columns)
        return Own("gradient", 0, (rows, columns)), Own("gradient", rows * columns, (rows,)) if bias else None


def matrix(step: Builder, weight: Tensor, bias: Tensor | None = None) -> list[Parameter]:
    """The blocks of a matrix, each with the same rows of the bias, if there is one."""
    rows, columns = step.shape(weight)
    second_at = slicing.block_rows(rows, columns) * columns
    starts = [(step.elements(weight)[0], columns), *([(step.elements(bias)[0], 1)] if bias else [])]
    return [
        Parameter(f"{weight.name} b{i}", tuple((at + first * n, at + last * n) for at, n in starts), second_at)
        for i, (first, last) in enumerate(step.blocks(weight))
    ]


def block_grid(step: Builder, weight: Tensor, own: bool) -> Grid:
    """A tile for each block of a matrix: its rows [out0, out1), and the first row of its gradient."""
    blocks = step.blocks(weight)
    first, last = zip(*blocks, strict=True)
    labels = tuple(f"{weight.name} b{i}" for i in range(len(blocks)))
    return Grid(labels).with_columns(out0=first, out1=last, to=[0] * len(blocks) if own else first)


def vectors(step: Builder, label: str, *tensors: Tensor) -> Parameter:
    """Whole tensors as one parameter."""
    spans = tuple(step.elements(tensor) for tensor in tensors)
    return Parameter(label, spans, spans[0][1] - spans[0][0])


def grid(parameters: Sequence[Parameter], gradients: Arena | Own) -> Grid:
    """A tile for each parameter: its elements [a0, a1) and [b0, b1), and where their gradients and their optimizer's
    state begin."""
    bounds = [[*(end for span in (*each.spans, (0, 0))[:2] for end in span)] for each in parameters]
    a0, a1, b0, b1 = zip(*bounds, strict=True)
    own = isinstance(gradients, Own)
    kept = [each.state for each in parameters]
    kept_a, kept_b = zip(*([first for first, _ in (*ranges, (0, 0))[:2]] for ranges in kept), strict=True)
    return Grid(tuple(each.label for each in parameters), {}, {KEPT: tuple(kept)}).with_columns(
        a0=a0, a1=a1, b0=b0, b1=b1, kept_a=kept_a, kept_b=kept_b,
        at_a=[0] * len(parameters) if own else a0, at_b=[each.second_at for each in parameters] if own else b0,
    )  # fmt: skip
