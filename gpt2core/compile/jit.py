"""The one place where compiled code is declared: flags, error model, and the form in which the runtime calls a kernel.

A kernel is plain arithmetic on arrays (`kernel`). An entry is its C function: void(operands, tile, context), all int64
pointers. So one compiled runtime can call any kernel by its address, and kernels compile, cache and change one by one.
Entries are generated from kernels' signatures (entries.py).

    operands  4 int64 for each operand: address, two dimensions, bytes between the parts of two threads if each has its
              own; a scalar is in the first
    tile      the tile's integers, as the step program gives them
    context   STEP, THREAD, SCRATCH (address of this thread's words for matrix products), COMPLETE (what a poll found)

Declaring loads neither a compiler nor NumPy (later.py). A called function is loaded from the cache (objects.py), or
compiled (compiler.py).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from gpt2core.compile.arrays import array_value
from gpt2core.compile.later import module, resolve
from gpt2core.compile.line import LINE

if TYPE_CHECKING:
    from gpt2core.compile.calls import Call
    from gpt2core.compile.code import Compiled, Loaded

STEP, THREAD, SCRATCH, COMPLETE = range(4)
CONTEXT_SIZE = LINE
OPERAND_SIZE = 4  # int64
OF_KERNEL = "ppp"  # parameters of a kernel's entry: three pointers

# Sums may be reordered, products fused, and divisions replaced by products with the reciprocal. NaN and infinity keep
# their meaning, because a diverging run must be seen.
FASTMATH = {"reassoc", "contract", "nsz", "arcp"}
ENTRY_FLAGS = {"error_model": "numpy", "fastmath": FASTMATH}


types, cgutils = module("numba.core.types"), module("numba.core.cgutils")  # for intrinsics
ir = module("llvmlite.ir")
calls, compiler, objects = (module(f"gpt2core.compile.{name}") for name in ("calls", "compiler", "objects"))


class Intrinsic:
    """A function that generates LLVM IR for its caller: (typing context, types) -> (signature, generator)."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    @functools.cached_property
    def _numba_type_(self) -> Any:  # Numba reads this attribute of unknown values
        resolve(self.function)
        return compiler.type_of_intrinsic(self.function)


class Function:
    """A function for compiled code, and for Python, which calls it without holding the GIL. vectors: see `kernel`."""

    def __init__(self, function: Callable[..., Any], vectors: int = 0, **flags: Any) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self.vectors = vectors
        self.targetoptions = {"nopython": True, "nogil": True, "error_model": "numpy", **flags}
        self._loaded: dict[str, Loaded] = {}

    @property
    def py_func(self) -> Callable[..., Any]:
        """The function, for the compiler: Numba reads this and `targetoptions` to inline a function."""
        resolve(self._function)
        return self._function

    @functools.cached_property
    def _dispatcher(self) -> Any:
        return compiler.dispatcher(self.py_func, self.targetoptions)

    @property
    def _numba_type_(self) -> Any:
        return self._dispatcher._numba_type_

    def __call__(self, *arguments: Any) -> Any:
        return self.ready(*arguments)()

    def ready(self, *arguments: Any) -> Call:
        """A call with these arguments, compiled or loaded. Raises TypeError for a value that compiled code does not
        accept."""
        name = self._function.__name__
        kinds, cells = calls.flatten(arguments)
        if kinds not in self._loaded:
            made_from = (objects.origin(self._function), kinds, str(self.vectors))
            self._loaded[kinds] = objects.load(name, made_from, lambda symbol: self._compile(arguments, symbol))
        call: Call = calls.Call(name, self._loaded[kinds], arguments, cells)
        return call

    def _compile(self, arguments: Sequence[Any], symbol: str) -> Compiled:
        compiled: Compiled = compiler.compile_face(
            self.py_func, self.targetoptions, self.vectors, arguments, symbol
        )
        return compiled


class Entry:
    """A function of pointers (p) and integers (i) without a result, which compiled code calls by its address.

    It is compiled, or loaded, when its address is first used. `make` returns the function, and `made_from` is what it
    depends on. vectors: see `kernel`.
    """

    def __init__(
        self,
        name: str,
        parameters: str,
        make: Callable[[], Callable[..., Any]],
        made_from: Sequence[str],
        vectors: int = 0,
    ) -> None:
        self.name, self.parameters, self.make, self.vectors = name, parameters, make, vectors
        self.made_from = (parameters, str(vectors), *made_from)

    @functools.cached_property
    def loaded(self) -> Loaded:
        loaded: Loaded = objects.load(self.name, self.made_from, self._compile)
        return loaded

    @property
    def address(self) -> int:
        return self.loaded.address

    @property
    def is_kept(self) -> bool:
        """Whether it need not be compiled."""
        return bool(objects.is_kept(self.name, self.made_from))

    def _compile(self, symbol: str) -> Compiled:
        compiled: Compiled = compiler.compile_entry(
            self.make(), ENTRY_FLAGS, self.vectors, self.parameters, symbol
        )
        return compiled


intrinsic: Any = Intrinsic


def kernel(function: Callable[..., Any] | None = None, *, vectors: int = 0) -> Any:
    """Declare arithmetic: no bounds checks, no error for x / 0; inlined where compiled code calls it.

    vectors: how many vectors of a loop's elements are computed side by side, for loops of long chains, in which each
    operation waits for the one before; 0: as many as LLVM chooses, one in such loops. It holds where the kernel is an
    entry or called from Python, for all its loops, and not where it is inlined. Sums over a loop depend on it.

    It is inlined because LLVM's linker keeps one copy of a function that several object files contain, and two copies
    may fuse products differently. A run that compiles and a run that loads from the cache must give the same bits
    (tests/e2e/test_cold_start.py).
    """
    if function is None:
        return functools.partial(kernel, vectors=vectors)
    return Function(function, vectors, fastmath=FASTMATH, inline="always")


def runtime(function: Callable[..., Any]) -> Any:
    """Declare a part of the runtime: like a kernel, but arithmetic must not be reordered."""
    return Function(function)


def inlined(function: Callable[..., Any]) -> Any:
    """Declare a part of the runtime that is inlined into its caller, so that tasks do not pass a hundred arguments."""
    return Function(function, inline="always")


def entry(parameters: str) -> Callable[[Callable[..., Any]], Entry]:
    """Declare a function of such parameters as an entry."""

    def declared(function: Callable[..., Any]) -> Entry:
        name = function.__name__.removesuffix("_entry")
        return Entry(name, parameters, lambda: function, (objects.origin(function),))

    return declared


def pointer(dtype: str) -> Any:
    """An intrinsic (address): the int64 address as a pointer to elements of this dtype."""

    def declared(typingctx, address):
        def codegen(context, builder, signature, args):
            return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

        return types.CPointer(getattr(types, dtype))(types.int64), codegen

    return intrinsic(declared)


pointer_f32, pointer_f64, pointer_i64, pointer_i32, pointer_u16, pointer_u8 = (
    pointer(dtype) for dtype in ("float32", "float64", "int64", "int32", "uint16", "uint8")
)


@intrinsic
def carray(typingctx, pointer, shape):
    """The C-contiguous array of a shape, a tuple of int64, at a pointer. Unlike with Numba's carray, no function is
    compiled for each dtype and rank."""

    def codegen(context, builder, signature, args):
        sizes = cgutils.unpack_tuple(builder, args[1], len(shape))
        return array_value(context, builder, signature.return_type, args[0], sizes)

    return types.Array(pointer.dtype, len(shape), "C")(pointer, shape), codegen


@intrinsic
def address_of(typingctx, array, offset):
    """Address in bytes of the element `offset` of a C-contiguous array."""

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
