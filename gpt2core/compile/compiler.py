"""Compiles with Numba: the only module that loads it, when machine code is not in the cache."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import llvmlite.binding as llvm

# Numba colours the message of every overload that it tries and drops, before anyone reads one.
os.environ.setdefault("NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING", "1")

# Numba's debugging setting leaves functions to Python, which has no atomics, pointers or addresses.
os.environ.pop("NUMBA_DISABLE_JIT", None)

import numba
from llvmlite import ir
from numba.core import compiler, config, errors, types
from numba.core import ir as numba_ir
from numba.core.codegen import get_host_cpu_features
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import _FunctionCompiler  # type: ignore[attr-defined]
from numba.core.registry import cpu_target
from numba.core.runtime.nrt import rtsys
from numba.core.typing.templates import make_intrinsic_template

from gpt2core.compile.arrays import array_value
from gpt2core.compile.code import Compiled
from gpt2core.compile.llvm import I32, I64, VOID, call
from gpt2core.compile.target import features

NO_ARRAYS = "Compiled code must not allocate: instead of new arrays (np.zeros, x * y, x[a:b] = y[a:b]), write loops."
# Reasons of Numba for refusing code that allocates.
ALLOCATES = ("NRT required but not enabled", "Only accept returning of array passed into the function")
PARAMETERS = {"p": types.CPointer(types.int64), "i": types.int64}  # of an entry

llvm.initialize_native_asmparser()  # for inline assembly

# Numba copies a function's blocks whenever it inlines it, and with each block all names of the function. Names and
# places in the source can be shared: the machine code is the same, and compiling takes a tenth less time.
for _shared in (numba_ir.Scope, numba_ir.Loc):
    setattr(_shared, "__deepcopy__", lambda self, _memo: self)  # noqa: B010


def dispatcher(function: Callable[..., Any], flags: Mapping[str, Any]) -> Any:
    """Numba's dispatcher of a function, for calls from compiled code. Its type does not keep it alive."""
    return numba.jit(**flags)(function)


def type_of_intrinsic(define: Callable[..., Any]) -> Any:
    """Numba's type of an intrinsic."""
    return types.Function(make_intrinsic_template(define, define, define.__name__))


@functools.cache
def _prefer_wide_vectors() -> None:
    """On Intel's processors LLVM prefers vectors of half the width, since wide ones once lowered the clock. Matrix
    products use wide ones anyway; exponentials are 1.5 times as fast with them (docs/performance.md).
    NUMBA_CPU_FEATURES wins.
    """
    if "avx512f" in features() and config.CPU_FEATURES is None:  # type: ignore[attr-defined]
        config.CPU_FEATURES = f"{get_host_cpu_features()},-prefer-256-bit"  # type: ignore[attr-defined]


@global_compiler_lock
def declare_functions() -> None:
    """Tell LLVM the addresses of Numba's own functions that machine code may call, such as numba_frexp."""
    _prefer_wide_vectors()
    rtsys.initialize(cpu_target.target_context)


class _Bare(_FunctionCompiler):  # type: ignore[misc]
    """Compiles a function without the wrappers through which Numba would call it."""

    def _customize_flags(self, flags: Any) -> Any:
        flags.no_cpython_wrapper = flags.no_cfunc_wrapper = flags.no_compile = True
        flags.enable_pyobject = False
        flags.nrt = False  # nor those that it calls: no reference counts, since nothing is allocated
        return flags


@global_compiler_lock
def compile_entry(
    function: Callable[..., Any], flags: Mapping[str, Any], vectors: int, parameters: str, symbol: str
) -> Compiled:
    """Compile a function of 64-bit pointers (p) and integers (i) that returns nothing, as void(...)."""
    native = _compile(function, flags, vectors, [PARAMETERS[letter] for letter in parameters], types.void)
    context = cpu_target.target_context
    module, builder, face = _face(symbol, VOID, [context.get_value_type(each) for each in native.fndesc.argtypes])
    failed, _ = _call(module, builder, native, face.args)
    with builder.if_then(failed, likely=False):
        call(builder, "llvm.trap", VOID)  # kernels raise no exceptions, since nothing could handle them
    builder.ret_void()
    return _finish(native, module)


@global_compiler_lock
def compile_face(
    function: Callable[..., Any], flags: Mapping[str, Any], vectors: int, arguments: Sequence[Any], symbol: str
) -> Compiled:
    """Compile a function of these arguments as int32(int64 *cells): see calls.py. Raises TypeError for a result of
    several parts."""
    native = _compile(function, flags, vectors, [numba.typeof(each) for each in arguments], None)
    module, builder, face = _face(symbol, I32, [ir.PointerType(I64)])
    cells = _Cells(builder, face.args[0])
    result_at = cells.next_address()
    values = [cells.value(each) for each in native.fndesc.argtypes]
    failed, value = _call(module, builder, native, values)
    result, bits = _result(builder, native.fndesc.restype, value)
    if bits is not None:
        builder.store(bits, result_at)
    builder.ret(builder.zext(failed, I32))
    return _finish(native, module, result)


class _Cells:
    """Reads values from cells, in their order."""

    def __init__(self, builder: Any, first: Any) -> None:
        self.builder, self.first, self.count = builder, first, 0
        self.context = cpu_target.target_context

    def next_address(self) -> Any:
        self.count += 1
        return self.builder.gep(self.first, [ir.Constant(I32, self.count - 1)])

    def next(self) -> Any:
        return self.builder.load(self.next_address())

    def value(self, kind: Any) -> Any:
        """A value of one of Numba's types."""
        parts: Any = kind
        if isinstance(kind, types.BaseTuple):
            return self.context.make_tuple(self.builder, kind, [self.value(each) for each in parts])
        if isinstance(kind, types.Array):
            data = self.builder.inttoptr(self.next(), self.context.get_data_type(kind.dtype).as_pointer())
            shape = [self.next() for _ in range(kind.ndim)]
            return array_value(self.context, self.builder, kind, data, shape)
        wanted, cell = self.context.get_value_type(kind), self.next()
        if isinstance(kind, types.Float):
            bits = ir.IntType(kind.bitwidth)
            return self.builder.bitcast(self.builder.trunc(cell, bits) if bits != I64 else cell, wanted)
        return self.builder.trunc(cell, wanted) if wanted != I64 else cell


def _compile(
    function: Callable[..., Any], flags: Mapping[str, Any], vectors: int, arguments: Sequence[Any], result: Any
) -> Any:
    """Numba's compiled function; its library may still be extended."""
    _prefer_wide_vectors()
    llvm.set_option("", f"--force-vector-interleave={vectors}")  # of this process, until the next one is compiled
    try:
        return _Bare(function, cpu_target, dict(flags), {}, compiler.Compiler).compile(tuple(arguments), result)
    except errors.NumbaError as error:
        if any(reason in str(error) for reason in ALLOCATES):
            error.add_note(NO_ARRAYS)
        raise


def _face(symbol: str, result: Any, parameters: Sequence[Any]) -> tuple[Any, Any, Any]:
    """An LLVM module, a builder inside its one function, and the function."""
    module = cpu_target.target_context.create_module(symbol)
    face = ir.Function(module, ir.FunctionType(result, parameters), symbol)
    return module, ir.IRBuilder(face.append_basic_block("entry")), face


def _call(module: Any, builder: Any, native: Any, values: Sequence[Any]) -> tuple[Any, Any]:
    """Call the compiled function; return whether it raised an exception, and its result."""
    convention, about = cpu_target.target_context.call_conv, native.fndesc
    kind = convention.get_function_type(about.restype, about.argtypes)
    callee = ir.Function(module, kind, about.llvm_func_name)
    status, value = convention.call_function(
        builder, callee, about.restype, about.argtypes, values, attrs=("noinline",)
    )
    return status.is_error, value


def _result(builder: Any, kind: Any, value: Any) -> tuple[str, Any]:
    """The kind of a result, and its value as 64 bits."""
    if isinstance(kind, types.NoneType):
        return "none", None
    if isinstance(kind, types.Float):
        return "float", builder.bitcast(builder.fpext(value, ir.DoubleType()) if kind.bitwidth < 64 else value, I64)
    if isinstance(kind, types.Boolean):
        return "bool", builder.zext(value, I64)
    number: Any = kind
    if isinstance(kind, types.Integer):
        extend = builder.sext if number.signed else builder.zext
        return "int", extend(value, I64) if number.bitwidth < 64 else value
    raise TypeError(f"compiled code may return a number to Python, not {kind}")


def _finish(native: Any, module: Any, result: str = "none") -> Compiled:
    """The object code of a compiled function and its C interface."""
    linked = native.library
    linked.add_ir_module(module)
    linked.finalize()
    _, _, (code, _) = linked.serialize_using_object_code()
    calls = [each.name for each in linked._final_module.functions if each.is_declaration]
    return Compiled(code, [name for name in calls if not name.startswith("llvm.")], result)
