"""Names that are loaded when they are first used: declaring a kernel loads neither a compiler nor NumPy.

A kernel's body uses them as if they had been imported. Servers, which have no compiler, import layers to size runs.
"""

from __future__ import annotations

import importlib
from typing import Any


class Later:
    """A module, or something in it."""

    def __init__(self, module: str, name: str | None = None) -> None:
        self._module, self._name = module, name

    @property
    def _loaded(self) -> Any:
        module = importlib.import_module(self._module)
        return getattr(module, self._name) if self._name else module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loaded, name)

    def __call__(self, *arguments: Any) -> Any:
        return self._loaded(*arguments)

    @property
    def _numba_type_(self) -> Any:  # Numba reads this attribute of unknown values
        numba, loaded = importlib.import_module("numba"), self._loaded
        return numba.typeof(loaded) if self._name else numba.types.Module(loaded)


class Constant:
    """A float32."""

    def __init__(self, value: float) -> None:
        self._value = value

    def __float__(self) -> float:
        return self._value

    @property
    def _numba_type_(self) -> Any:
        return importlib.import_module("numba").float32


def float32(value: float) -> Any:
    """A constant of a kernel's module."""
    return Constant(value)


np: Any = Later("numpy")
half, whole, is_half = (Later("gpt2core.compile.bfloat16", name) for name in ("half", "whole", "is_half"))
exp32, maximum32 = (Later("gpt2core.compile.vector", name) for name in ("exp32", "maximum32"))
