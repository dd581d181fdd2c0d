"""A cache of machine code: it is compiled once, and then loaded without Numba, and on x86-64 also without LLVM.

A file contains the object code of one function with the C calling convention. A changed source, another processor or
another version of the compiler is another file (node/cache.py), and a damaged file is compiled again.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gpt2core.compile import linker, target
from gpt2core.compile.code import Compiled, Loaded
from gpt2core.compile.collector import without_collector
from gpt2core.node import cache
from gpt2core.spec.errors import MachineError

_lock = threading.Lock()
_loaded: dict[str, Loaded] = {}
_made: list[str] = []  # symbols of the functions that this process compiled


def load(name: str, made_from: Sequence[str], make: Callable[[str], Compiled]) -> Loaded:
    """Load the function of this name and these inputs; compile and store it first if there is no file.

    `make` compiles it under the given symbol, for one function at a time. Raises UnreadableFile if it cannot be stored,
    MachineError if the system refuses executable memory.
    """
    path = _path(name, made_from)
    symbol = f"taskloom_{path.stem.replace('-', '_')}"
    with _lock:
        if symbol not in _loaded:
            content, was_kept = cache.read_or_make(path, lambda: _compile(symbol, make).to_bytes())
            compiled = Compiled.from_bytes(content)
            _loaded[symbol] = Loaded(_link(symbol, compiled), compiled.result, was_kept)
        return _loaded[symbol]


def _compile(symbol: str, make: Callable[[str], Compiled]) -> Compiled:
    with without_collector():
        compiled = make(symbol)
    _made.append(symbol)
    return compiled


def compiled_here() -> int:
    """Number of functions that this process compiled. Without any, it has not loaded the compiler."""
    return len(_made)


def is_kept(name: str, made_from: Sequence[str]) -> bool:
    """Whether there is a file of this name and these inputs."""
    return _path(name, made_from).exists()


def _path(name: str, made_from: Sequence[str]) -> Path:
    return cache.path(name, [target.identity(), name, *made_from], ".o", target.compiled_folder())


@functools.cache
def origin(function: Callable[..., object]) -> str:
    """Identity of a function: its name and the hash of its file. Raises TypeError for a closure."""
    if function.__closure__:
        raise TypeError(f"{function.__qualname__} is a closure; its file does not determine what it captured")
    content = hashlib.sha256(Path(inspect.getfile(function)).read_bytes()).hexdigest()
    return f"{function.__module__}.{function.__qualname__} {content}"


def _link(symbol: str, compiled: Compiled) -> int:
    """Link object code into this process; return the address of a symbol in it."""
    try:
        return linker.link(compiled.code, symbol)
    except linker.Unsupported:
        return _link_by_llvm(symbol, compiled)
    except OSError as error:
        raise MachineError(f"compiled code needs executable memory: {error.strerror}") from error


def _link_by_llvm(symbol: str, compiled: Compiled) -> int:
    """As `_link`, for every processor and for code that calls Numba's own functions."""
    import llvmlite.binding as llvm

    engine = _engine()  # first, so that LLVM also finds the process's own functions
    if any(llvm.address_of_symbol(name) is None for name in compiled.calls):
        from gpt2core.compile import compiler

        compiler.declare_functions()
    engine.add_object_file(llvm.ObjectFileRef.from_data(compiled.code))
    return int(engine.get_function_address(symbol))


@functools.cache
def _engine() -> Any:
    """LLVM's linker in memory. Its module stays empty, so nothing is compiled for it."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(jit=True)
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
