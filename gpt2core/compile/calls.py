"""Calls of compiled functions from Python, without Numba. A call releases the GIL.

The C interface of a function, which compiler.py generates, takes the address of int64 cells. The first cell receives
the result. An integer, a float or a bool takes one cell. An array takes one for its address and one for each dimension.
A tuple takes the cells of its parts.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gpt2core.compile.code import Loaded

FACE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)  # returns 0 unless the function raised an exception

RESULTS: dict[str, Callable[[int], Any]] = {
    "none": lambda _: None,
    "bool": bool,
    "int": int,
    "float": lambda cell: struct.unpack("=d", struct.pack("=q", cell))[0],
}


class Call:
    """A call of a compiled function with arguments, which are kept alive. It can be repeated."""

    def __init__(self, name: str, loaded: Loaded, arguments: Sequence[Any], cells: Sequence[int]) -> None:
        self.name, self.result, self._arguments = name, loaded.result, arguments
        self._face = FACE(loaded.address)
        self._cells = (ctypes.c_int64 * (1 + len(cells)))(0, *cells)

    def __call__(self) -> Any:
        if self._face(self._cells):
            raise RuntimeError(f"the compiled function {self.name} raised an exception")
        return RESULTS[self.result](self._cells[0])


def flatten(value: Any) -> tuple[str, list[int]]:
    """The kind of an argument, and its cells. Raises TypeError for a value that compiled code does not accept."""
    if isinstance(value, int):
        return ("bool" if isinstance(value, bool) else "int64"), [int(value)]
    if isinstance(value, float):
        value = np.float64(value)
    if isinstance(value, np.generic):
        return str(value.dtype), [int.from_bytes(value.tobytes(), sys.byteorder)]
    if isinstance(value, np.ndarray) and value.flags.c_contiguous:
        writable = "" if value.flags.writeable else "read-only "
        return f"{writable}{value.dtype}[{value.ndim}]", [value.ctypes.data, *value.shape]
    if isinstance(value, tuple):
        parts = [flatten(part) for part in value]
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        return f"{kind}({', '.join(part for part, _ in parts)})", [cell for _, cells in parts for cell in cells]
    raise TypeError(f"compiled code accepts numbers, C-ordered arrays and tuples of them, not {value!r}")
