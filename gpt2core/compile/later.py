"""Names for kernels that get their values when one is compiled: declaring a kernel loads neither a compiler nor NumPy,
and does not look at the processor.

Servers, which have no compiler, import layers to size runs. So a layer's module names what its kernels' bodies use, and
`resolve` replaces the names before a kernel of the module is compiled.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any


class Later:
    """A value that is made when it is first used: as a module, or by compiled code."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    def __getattr__(self, name: str) -> Any:
        return getattr(self._make(), name)


def module(name: str) -> Any:
    """A module."""
    return Later(lambda: importlib.import_module(name))


def names(of: str, *names: str) -> Any:
    """Attributes of a module."""
    return tuple(Later(lambda name=name: getattr(importlib.import_module(of), name)) for name in names)  # type: ignore[misc]


def attributes(make: Callable[[], Any], *names: str) -> Any:
    """Attributes of what `make` returns."""
    return tuple(Later(lambda name=name: getattr(make(), name)) for name in names)  # type: ignore[misc]


def float32(value: float) -> Any:
    """A float32."""
    return Later(lambda: importlib.import_module("numpy").float32(value))


def resolve(function: Callable[..., Any]) -> None:
    """Replace what the module of a function names by what it is."""
    known = function.__globals__
    for name, value in list(known.items()):
        while isinstance(value, Later):
            value = known[name] = value._make()


np = module("numpy")
half, whole, like, is_half = names("gpt2core.compile.bfloat16", "half", "whole", "like", "is_half")
exp32, maximum32 = names("gpt2core.compile.vector", "exp32", "maximum32")
