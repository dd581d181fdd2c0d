"""The one place where code is compiled: flags, error model, caching, and the form in which the runtime calls a kernel.

A kernel is plain arithmetic on arrays (`kernel`). An entry is its C face: void(operands, tile, context), all int64
pointers, so that one compiled runtime can call any kernel through its address and kernels compile, cache and change one
by one. Entries are made from kernels' signatures (entries.py).

    operands  4 int64 an operand: address, two dimensions, bytes from one thread's own part to the next; a scalar stands
              in the first
    tile      the tile's integers, as the step program gives them
    context   STEP, THREAD, SCRATCH (address of this thread's words for matrix products)
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import numba
from llvmlite import ir
from numba import types
from numba.core import sigutils
from numba.core.caching import FunctionCache
from numba.core.ccallback import CFunc
from numba.core.runtime._nrt_python import c_helpers
from numba.extending import intrinsic as _intrinsic

from gpt2core.compile.target import cache_folder
from gpt2core.spec import settings

intrinsic: Any = _intrinsic  # what it makes is called with fewer arguments than it is declared with

STEP, THREAD, SCRATCH = 0, 1, 2
CONTEXT_SIZE = 8  # int64; one cache line
OPERAND_SIZE = 4  # int64
ENTRY_SIGNATURE = types.void(types.CPointer(types.int64), types.CPointer(types.int64), types.CPointer(types.int64))

# Sums may be reordered, products fused and divisions made products with the reciprocal, but NaN and infinity keep their
# meaning: a diverging run must show it.
FASTMATH = {"reassoc", "contract", "nsz", "arcp"}


CACHE = settings.numba_cache() or str(cache_folder())
numba.config.CACHE_DIR = CACHE  # type: ignore[attr-defined]


class Cache(FunctionCache):
    """Numba's cache of a function, which loads machine code without first loading all that compiles it: a quarter of a
    second of every start. Where nothing is kept, the compiler loads that itself.
    """

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """What is kept for a signature, or None."""
        _declare_runtime()
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)


@functools.cache
def _declare_runtime() -> None:
    """Tell LLVM the addresses of Numba's own functions that machine code may call."""
    for name, address in c_helpers.items():
        llvm.add_symbol(name if name.startswith("_") else f"NRT_{name}", address)


def _cached(function: Callable[..., Any], **flags: Any) -> Any:
    """Declare a function that is compiled, or loaded from the cache, when it is first called."""
    dispatcher = numba.njit(nogil=True, error_model="numpy", **flags)(function)
    dispatcher._cache = Cache(function)
    return dispatcher


def kernel(function: Callable[..., Any]) -> Any:
    """Compile arithmetic: no GIL, no bounds checks, no error for x / 0, cached; inlined where compiled code calls it.

    Inlined because an object file's copy of a called function may be replaced by another file's copy when the linker
    meets both, and two copies may differ in how products are fused: a run that compiles and a run that loads from the
    cache must give the same bits (tests/e2e/test_cold_start.py).
    """
    return _cached(function, fastmath=FASTMATH, inline="always")


def runtime(function: Callable[..., Any]) -> Any:
    """Compile a part of the runtime: as a kernel, without licence to reorder arithmetic."""
    return _cached(function)


def inlined(function: Callable[..., Any]) -> Any:
    """Compile a part of the runtime into the loop that calls it: no hundred arguments to pass for each task."""
    return _cached(function, inline="always")


class Entry:
    """A kernel's C face, compiled or loaded from the cache when its address is first asked for."""

    def __init__(self, function: Callable[..., Any], signature: Any = ENTRY_SIGNATURE) -> None:
        self.function, self.signature = function, signature
        self.name = function.__name__.removesuffix("_entry")
        self.was_cached = False
        self._compiled: Any = None

    @property
    def address(self) -> int:
        if self._compiled is None:
            flags = {"error_model": "numpy", "fastmath": FASTMATH}
            self._compiled = CFunc(self.function, sigutils.normalize_signature(self.signature), {}, flags)
            self._compiled._cache = Cache(self.function)
            self._compiled.compile()
            self.was_cached = self._compiled.cache_hits > 0
        return int(self._compiled.address)


def entry(function: Callable[..., Any]) -> Entry:
    """Declare function(operands, tile, context) as an entry."""
    return Entry(function)


def entry_of(*arguments: Any) -> Callable[[Callable[..., Any]], Entry]:
    """Declare a function of arguments of these types, which returns nothing, as an entry."""
    return lambda function: Entry(function, types.void(*arguments))


@intrinsic
def pointer_f32(typingctx, address):
    """The int64 address as a pointer to float32."""
    return _pointer(types.float32)


@intrinsic
def pointer_f64(typingctx, address):
    """The int64 address as a pointer to float64."""
    return _pointer(types.float64)


@intrinsic
def pointer_i64(typingctx, address):
    """The int64 address as a pointer to int64."""
    return _pointer(types.int64)


@intrinsic
def pointer_i32(typingctx, address):
    """The int64 address as a pointer to int32."""
    return _pointer(types.int32)


@intrinsic
def pointer_u16(typingctx, address):
    """The int64 address as a pointer to uint16."""
    return _pointer(types.uint16)


@intrinsic
def pointer_u8(typingctx, address):
    """The int64 address as a pointer to bytes."""
    return _pointer(types.uint8)


def _pointer(kind):
    def codegen(context, builder, signature, args):
        return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

    return types.CPointer(kind)(types.int64), codegen


@intrinsic
def address_of(typingctx, array, offset):
    """Address in bytes of the element that lies `offset` elements after the start of a C-contiguous array."""

    def codegen(context, builder, signature, args):
        array_type = signature.args[0]
        struct = context.make_array(array_type)(context, builder, args[0])
        base = builder.ptrtoint(struct.data, ir.IntType(64))
        return builder.add(base, builder.mul(args[1], struct.itemsize))

    return types.int64(array, types.int64), codegen


@intrinsic
def address(typingctx, pointer):
    """A pointer as an int64."""

    def codegen(context, builder, signature, args):
        return builder.ptrtoint(args[0], ir.IntType(64))

    return types.int64(pointer), codegen


@intrinsic
def call_entry(typingctx, address, operands, tile, context):
    """Call the entry at an address with three pointers, all given as int64."""

    def codegen(ctx, builder, signature, args):
        pointer = ir.PointerType(ir.IntType(64))
        kind = ir.FunctionType(ir.VoidType(), [pointer, pointer, pointer])
        function = builder.inttoptr(args[0], ir.PointerType(kind))
        builder.call(function, [builder.inttoptr(a, pointer) for a in args[1:]])
        return ctx.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, types.int64), codegen


@numba.njit(inline="always")
def bare(array):
    """An int64 array without its reference count; the caller keeps the memory alive.

    Every use of a counted array may cost two atomic operations on a line that all threads share: in the task loop they
    cost four times as much as everything else did (docs/decisions/0007).
    """
    return numba.carray(pointer_i64(address_of(array, 0)), array.shape)
