"""Calls from compiled code to functions by name: LLVM's intrinsics and the C library's.

A name is resolved when the code is linked, so the code can be cached.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir

VOID, I8, I16, I32, I64 = ir.VoidType(), *(ir.IntType(bits) for bits in (8, 16, 32, 64))
FLOAT = ir.FloatType()


def call(builder: Any, name: str, result: ir.Type, arguments: Sequence[Any] = ()) -> Any:
    """Call the function of this name; its declaration follows from the arguments."""
    function = builder.module.globals.get(name)
    if function is None:
        function = ir.Function(builder.module, ir.FunctionType(result, [each.type for each in arguments]), name)
    return builder.call(function, arguments)
