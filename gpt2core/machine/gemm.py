"""Matrix products from compiled code. One interface over two libraries: both export the Fortran `sgemm`, whose address
is passed to compiled code as an argument (a baked-in one would defeat the cache).
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import threadpoolctl
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from gpt2core.errors import MachineError
from gpt2core.machine.clock import ticks
from gpt2core.machine.jit import address_of, kernel, runtime

ONE, ZERO = np.float32(1.0), np.float32(0.0)


@dataclass(frozen=True)
class Blas:
    """A loaded library, held to one thread a call."""

    name: str
    version: str
    sgemm: int  # address


@intrinsic
def gemm(typingctx, sgemm, trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc):
    """C (m, n) = alpha * op(A) (m, k) @ op(B) (k, n) + beta * C; row-major float32, op transposes if its flag is set.

    sgemm is the library's address; a, b, c are addresses in bytes; ld* are row lengths in elements.
    Row-major C is column-major C^T = op(B)^T op(A)^T: the operands change places.
    """
    i8, i32, f32 = ir.IntType(8), ir.IntType(32), ir.FloatType()

    def codegen(context, builder, signature, args):
        sgemm, trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc = args

        def letter(flag):
            nonzero = builder.icmp_signed("!=", flag, ir.Constant(flag.type, 0))
            value = builder.select(nonzero, ir.Constant(i8, ord("T")), ir.Constant(i8, ord("N")))
            return _spill(builder, value)

        def integer(value):
            return _spill(builder, builder.trunc(value, i32))

        def matrix(address):
            return builder.inttoptr(address, ir.PointerType(f32))

        call = [
            letter(trans_b), letter(trans_a), integer(n), integer(m), integer(k), _spill(builder, alpha),
            matrix(b), integer(ldb), matrix(a), integer(lda), _spill(builder, beta), matrix(c), integer(ldc),
        ]  # fmt: skip
        kind = ir.FunctionType(ir.VoidType(), [value.type for value in call])
        builder.call(builder.inttoptr(sgemm, ir.PointerType(kind)), call)
        return context.get_dummy_value()

    i64, f = types.int64, types.float32
    return types.void(i64, i64, i64, i64, i64, i64, f, i64, i64, i64, i64, f, i64, i64), codegen


def _spill(builder, value):
    """The value in a stack slot of the function's entry block: Fortran takes addresses."""
    slot = cgutils.alloca_once(builder, value.type)
    builder.store(value, slot)
    return slot


@kernel
def multiply_in_pieces(sgemm, piece, trans_a, trans_b, m, n, k, a, lda, b, ldb, c, ldc):
    """C (m, n) = op(A) @ op(B) as gemm, in pieces of so many columns."""
    for first in range(0, n, piece):
        at_b = b + 4 * first * (ldb if trans_b else 1)
        gemm(
            sgemm, trans_a, trans_b, m, min(piece, n - first), k,
            ONE, a, lda, at_b, ldb, ZERO, c + 4 * first, ldc,
        )  # fmt: skip


@runtime
def time_product(sgemm, piece, trans_a, trans_b, m, n, k, a, b, c):
    """Ticks of one product in pieces, on matrices without gaps."""
    begin = ticks()
    multiply_in_pieces(
        sgemm, piece, trans_a, trans_b, m, n, k,
        address_of(a, 0), m if trans_a else k, address_of(b, 0), k if trans_b else n, address_of(c, 0), n,
    )  # fmt: skip
    return ticks() - begin


def load(name: str) -> Blas:
    """Load "mkl" or "openblas"; "auto" is MKL where its wheel is installed, else SciPy's OpenBLAS.

    Raises MachineError if the library asked for is not there.
    """
    if name == "auto":
        name = "mkl" if platform.machine() == "x86_64" and _mkl_path() is not None else "openblas"
    return _load_mkl() if name == "mkl" else _load_openblas()


def available() -> list[Blas]:
    """The libraries there are, that of "auto" first."""
    first = load("auto")
    return [first] if first.name == "openblas" else [first, load("openblas")]


def _mkl_path() -> Path | None:
    try:
        files = importlib.metadata.files("mkl") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    found = [Path(str(f.locate())).resolve() for f in files if f.name.startswith("libmkl_rt.so")]
    return found[0] if found else None


def _load_mkl() -> Blas:
    path = _mkl_path()
    if path is None:
        raise MachineError("blas = 'mkl' needs the PyPI package mkl (x86-64 Linux); it is not installed")
    library = ctypes.CDLL(str(path))
    library.MKL_Set_Threading_Layer(ctypes.c_int(1))  # sequential; before the first product
    address = ctypes.cast(library.sgemm_, ctypes.c_void_p).value
    return Blas("mkl", importlib.metadata.version("mkl"), int(address or 0))


def _load_openblas() -> Blas:
    import scipy.linalg.cython_blas as cython_blas

    capsule: Any = cython_blas.__pyx_capi__["sgemm"]
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype, api.PyCapsule_GetName.argtypes = ctypes.c_char_p, [ctypes.py_object]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    address = api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule))
    threadpoolctl.threadpool_limits(1, user_api="blas")
    loaded = [
        i
        for i in threadpoolctl.threadpool_info()
        if i["user_api"] == "blas" and {"scipy", "scipy.libs"} & set(Path(i["filepath"]).parts)
    ]
    version = "{version} {architecture}".format(**loaded[0]) if loaded else "unknown"
    return Blas("openblas", version, int(address))
