"""Entries of kernels: their C faces, generated from their signatures.

The source of an entry is a file in Numba's cache folder, because Numba caches only what was compiled from a file. The
file's name tells its content and that of the kernel's file, so that a changed kernel is another entry.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
from pathlib import Path
from typing import Any

import numba

from gpt2core.compile import jit
from gpt2core.compile.jit import Entry
from gpt2core.node.files import replacing
from gpt2core.step.signature import Array, Integer, Kernel, Kind, signature

POINTERS = {
    "float32": jit.pointer_f32,
    "float64": jit.pointer_f64,
    "int32": jit.pointer_i32,
    "int64": jit.pointer_i64,
    "uint16": jit.pointer_u16,
}


@functools.cache
def kernel_entry(kernel: Kernel) -> Entry:
    """The entry that calls a kernel with what an op gives it. Raises TypeError for a kernel without annotations."""
    source = source_of(kernel)
    path = _file(kernel, source)
    names: dict[str, Any] = {"__name__": kernel.__module__, "kernel": kernel, "carray": numba.carray}  # type: ignore[attr-defined]
    names.update({f"pointer_{dtype}": pointer for dtype, pointer in POINTERS.items()})
    exec(compile(source, path, "exec"), names)
    return Entry(names[f"{kernel.__name__}_entry"])


def source_of(kernel: Kernel) -> str:
    """Source of a kernel's entry: `x` are the operands, `t` the tile's integers, `c` the context (see jit)."""
    known = signature(kernel)
    operand = {name: number for number, name in enumerate(known.operands)}
    integer = {name: number for number, name in enumerate(known.integers)}
    lines = [f"def {known.name}_entry(x, t, c):", "    kernel("]
    for name, kind in known.kinds.items():
        argument = _argument(kind, jit.OPERAND_SIZE * operand.get(name, 0), integer.get(name, 0))
        lines.append(f"        {argument},  # {name}")
    return "\n".join([*lines, "    )", ""])


def _argument(kind: Kind, at: int, integer: int) -> str:
    """What stands for a parameter: `at` is where its operand begins, `integer` its place in the tile."""
    if isinstance(kind, Integer):
        return {"op": f"x[{at}]", "tile": f"t[{integer}]", "all": "t", "step": f"c[{jit.STEP}]"}[kind.of]
    if isinstance(kind, Array):
        start = f"x[{at}] + c[{jit.THREAD}] * x[{at + 3}]" if kind.own else f"x[{at}]"
        shape = ", ".join(f"x[{at + 1 + i}]" for i in range(kind.rank))
        return f"carray(pointer_{kind.dtype}({start}), ({shape},))"
    return f"(x[{at}], x[{at + 1}], x[{at + 2}], c[{jit.SCRATCH}])"


def _file(kernel: Kernel, source: str) -> str:
    """Path of the file that holds the source; it is written once, whole or not at all."""
    own = Path(inspect.getfile(getattr(kernel, "py_func", kernel)))
    key = hashlib.sha256(b"\0".join((str(own).encode(), own.read_bytes(), source.encode()))).hexdigest()[:16]
    # Not from numba.config: Numba reads its settings anew, and so forgets ours, when the environment changes.
    path = Path(jit.CACHE) / "entries" / f"{kernel.__name__}_{key}.py"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as part:
            part.write_text(source, encoding="utf-8")
    return str(path)
