"""Kinds of kernel parameters. A kernel's annotations declare its arguments; ops and entries follow from them.

    def layernorm_forward(out: Matrix, mean: Vector, ..., row0: TileInt, row1: TileInt): ...

One kernel may serve several dtypes (`MatrixOrHalves`): each combination that a program uses has an entry of its own.
Arrays are views of the tensors that an op names. A `TileInt` is the integer of that name of each tile; a `Scalar` is
one integer for the whole op. `Multiply`, `Step` and `TileInts` come from the runtime. A kernel that returns `Complete`
is a poll: it answers whether a task that ran is complete (see Builder.op).

A NamedTuple of such kinds groups parameters: an op names its fields, the entry makes one of them.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from gpt2core.step.tensors import HALF


@dataclass(frozen=True)
class Array:
    """A C-ordered array of one of some dtypes. `own`: each thread may have its own. `flat`: of any rank, and taken as
    one of rank 1."""

    dtypes: tuple[str, ...]
    rank: int
    own: bool = False
    flat: bool = False

    def __str__(self) -> str:
        return f"{'own ' if self.own else ''}{' or '.join(self.dtypes)} array of rank {self.rank}"


@dataclass(frozen=True)
class Integer:
    """An int64. `of`: op, tile or step, whichever it belongs to; all: every integer of the tile."""

    of: str


@dataclass(frozen=True)
class Answer:
    """The result of a poll."""


@dataclass(frozen=True)
class Multiplier:
    """Parameter of a matrix product (gemm.libraries.multiply), with the thread's scratch."""


Vector = Annotated[Any, Array(("float32",), 1)]
Matrix = Annotated[Any, Array(("float32",), 2)]
OwnVector = Annotated[Any, Array(("float32",), 1, own=True)]
OwnMatrix = Annotated[Any, Array(("float32",), 2, own=True)]
Float64s = Annotated[Any, Array(("float64",), 1)]
OwnFloat64s = Annotated[Any, Array(("float64",), 1, own=True)]
Int32s = Annotated[Any, Array(("int32",), 1)]
Int64s = Annotated[Any, Array(("int64",), 1)]
Int64Matrix = Annotated[Any, Array(("int64",), 2)]
OwnInt64s = Annotated[Any, Array(("int64",), 1, own=True)]
Bytes = Annotated[Any, Array(("uint8",), 1)]
UInt16s = Annotated[Any, Array(("uint16",), 1)]
Halves = Annotated[Any, Array((HALF,), 2)]
OwnHalves = Annotated[Any, Array((HALF,), 2, own=True)]
MatrixOrHalves = Annotated[Any, Array(("float32", HALF), 2)]  # the op's tensor decides; an entry for each
OwnMatrixOrHalves = Annotated[Any, Array(("float32", HALF), 2, own=True)]
Scalar = Annotated[Any, Integer("op")]
TileInt = Annotated[Any, Integer("tile")]
TileInts = Annotated[Any, Integer("all")]
Step = Annotated[Any, Integer("step")]
Multiply = Annotated[Any, Multiplier()]
Complete = Annotated[bool, Answer()]

Kind = Array | Integer | Multiplier
Kernel = Callable[..., Any]


@dataclass(frozen=True)
class Group:
    """A parameter that is a NamedTuple of parameters."""

    parameter: str
    of: type
    last: str  # the name of its last field


@dataclass(frozen=True)
class Signature:
    """A kernel's parameters in their order, the fields of a group one by one."""

    name: str
    kinds: dict[str, Kind]
    polls: bool = False
    groups: dict[str, Group] = field(default_factory=dict)  # by the name of their first field

    @property
    def operands(self) -> dict[str, Kind]:
        """Parameters that an op names once for all its tiles."""
        return {name: kind for name, kind in self.kinds.items() if kind == Integer("op") or not _is_integer(kind)}

    @property
    def integers(self) -> list[str]:
        """The tile's integers that the kernel takes by name."""
        return [name for name, kind in self.kinds.items() if kind == Integer("tile")]

    @property
    def choices(self) -> list[str]:
        """Arrays whose dtype the op's tensors decide."""
        return [name for name, kind in self.kinds.items() if isinstance(kind, Array) and len(kind.dtypes) > 1]

    def of(self, dtypes: Sequence[str]) -> Signature:
        """The signature with these dtypes of its choices. Raises TypeError for one that is not among them."""
        choices = self.choices
        if not choices and not dtypes:
            return self
        kinds = dict(self.kinds)
        for name, dtype in zip(choices, dtypes, strict=True):
            kind = kinds[name]
            if not isinstance(kind, Array) or dtype not in kind.dtypes:
                raise TypeError(f"{self.name}: {name} takes {kind}, not {dtype}")
            kinds[name] = replace(kind, dtypes=(dtype,))
        return replace(self, kinds=kinds)

    @property
    def takes_all_integers(self) -> bool:
        return Integer("all") in self.kinds.values()


def _is_integer(kind: Kind) -> bool:
    return isinstance(kind, Integer)


@functools.cache
def signature(kernel: Kernel) -> Signature:
    """The signature of a kernel, compiled or not. Raises TypeError for a parameter without one of these annotations."""
    function = inspect.unwrap(kernel)
    hints = typing.get_type_hints(function, include_extras=True)
    kinds: dict[str, Kind] = {}
    groups: dict[str, Group] = {}
    for parameter in function.__code__.co_varnames[: function.__code__.co_argcount]:
        of, fields = hints.get(parameter), {parameter: hints.get(parameter)}
        if isinstance(of, type) and issubclass(of, tuple):
            fields = typing.get_type_hints(of, include_extras=True)
            first, *_, last = fields
            groups[first] = Group(parameter, of, last)
        for name, hint in fields.items():
            kind = next(iter(getattr(hint, "__metadata__", ())), None)
            if not isinstance(kind, Array | Integer | Multiplier):
                raise TypeError(f"{function.__name__}: parameter {name} has no annotation of gpt2core.step.signature")
            if name in kinds:
                raise TypeError(f"{function.__name__}: two parameters are named {name}")
            kinds[name] = kind
    polls = Answer() in getattr(hints.get("return"), "__metadata__", ())
    return Signature(function.__name__, kinds, polls, groups)
