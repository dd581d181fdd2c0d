"""Entries of kernels: their C functions, generated from their signatures."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from gpt2core.compile import jit
from gpt2core.compile.jit import Entry
from gpt2core.compile.objects import origin
from gpt2core.step.signature import Array, Integer, Kernel, Kind, Signature, signature

pointer = functools.cache(jit.pointer)


@functools.cache
def kernel_entry(kernel: Kernel, dtypes: tuple[str, ...] = ()) -> Entry:
    """The entry that calls a kernel with the operands of an op, of these dtypes where its arrays have a choice.

    Raises TypeError for a kernel without annotations.
    """
    known = signature(kernel).of(dtypes)
    source, own = source_of(known), origin(inspect.unwrap(kernel))
    make, vectors = functools.partial(_function, kernel, known, source), getattr(kernel, "vectors", 0)
    return Entry(known.name, jit.OF_KERNEL, make, (own, source), vectors)


def _function(kernel: Kernel, known: Signature, source: str) -> Callable[..., Any]:
    names: dict[str, Any] = {"__name__": kernel.__module__, "kernel": kernel, "carray": jit.carray}
    arrays = (kind for kind in known.kinds.values() if isinstance(kind, Array))
    names.update({f"pointer_{dtype}": pointer(dtype) for array in arrays for dtype in array.dtypes})
    names.update({group.of.__name__: group.of for group in known.groups.values()})
    exec(compile(source, f"<entry of {known.name}>", "exec"), names)
    function: Callable[..., Any] = names[f"{known.name}_entry"]
    return function


def source_of(known: Signature) -> str:
    """Source of the entry of a kernel whose dtypes are decided: `x` are the operands, `t` the tile's integers, `c` the
    context (see jit). A poll leaves its answer in the context.
    """
    operand = {name: number for number, name in enumerate(known.operands)}
    integer = {name: number for number, name in enumerate(known.integers)}
    answer = f"c[{jit.COMPLETE}] = " if known.polls else ""
    lines = [f"def {known.name}_entry(x, t, c):", f"    {answer}kernel("]
    group, indent = None, " " * 8
    for name, kind in known.kinds.items():
        if name in known.groups:
            group, indent = known.groups[name], " " * 12
            lines.append(f"        {group.of.__name__}(")
        argument = _argument(kind, jit.OPERAND_SIZE * operand.get(name, 0), integer.get(name, 0))
        lines.append(f"{indent}{argument},  # {name}")
        if group and name == group.last:
            lines.append(f"        ),  # {group.parameter}")
            group, indent = None, " " * 8
    return "\n".join([*lines, "    )", ""])


def _argument(kind: Kind, at: int, integer: int) -> str:
    """The source of a parameter: `at` is the index of its operand, `integer` its index in the tile."""
    if isinstance(kind, Integer):
        return {"op": f"x[{at}]", "tile": f"t[{integer}]", "all": "t", "step": f"c[{jit.STEP}]"}[kind.of]
    if isinstance(kind, Array):
        start = f"x[{at}] + c[{jit.THREAD}] * x[{at + 3}]" if kind.own else f"x[{at}]"
        shape = ", ".join(f"x[{at + 1 + i}]" for i in range(kind.rank))
        return f"carray(pointer_{kind.dtypes[0]}({start}), ({shape},))"
    return f"(x[{at}], x[{at + 1}], x[{at + 2}], c[{jit.SCRATCH}])"


