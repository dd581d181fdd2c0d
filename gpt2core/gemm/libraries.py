"""Libraries of matrix products: our own code, and BLAS libraries, limited to one thread per call."""

from __future__ import annotations

import ctypes
import functools
import importlib.metadata
import importlib.util
import os
import platform
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpt2core.compile.bfloat16 import native
from gpt2core.compile.jit import Entry
from gpt2core.gemm import tiles
from gpt2core.gemm.blocking import blocking
from gpt2core.gemm.multiply import (
    own_product_of_floats,
    own_product_of_pairs,
    own_product_of_rounded,
    own_product_of_tiles,
    product_of_floats,
    product_of_rounded,
)
from gpt2core.spec import addresses
from gpt2core.spec.errors import MachineError

OPENBLAS_BYTES, BUFFER_BYTES = 64 << 20, 32 << 20  # the loaded library, and what it reserves for each calling thread


@dataclass(frozen=True)
class Library:
    """A library of matrix products: a BLAS, limited to one thread per call, or our own code.

    `entry` is compiled code for either precision. `find` loads the library and returns the address of its function
    that the entry calls; our own has none. A library that computes no product of a run is not loaded for it.
    """

    name: str
    version: str
    entry: Entry
    find: Callable[[], int] | None = field(default=None, compare=False)

    @functools.cached_property
    def address(self) -> int:
        """Of the library's function; 0 for our own."""
        return self.find() if self.find else 0

    def by(self, piece: int = 0, scratch: int = 0) -> tuple[int, int, int, int]:
        """The first argument of `multiply`."""
        return (self.entry.address, self.address, piece, scratch)


def ours(precision: str = "fp32") -> Library:
    """Our own product; of bfloat16 by the processor's fastest instructions for it that this process may use."""
    if precision != "bf16":
        return Library("own", instructions(precision), own_product_of_floats)
    if tiles.permitted():
        return Library("own", "amx-bf16", own_product_of_tiles)
    return Library("own", instructions(precision), own_product_of_pairs if native() else own_product_of_rounded)


def rounded() -> Library:
    """Our own product of rounded operands, multiplied as float32. Some processors do this faster than pairs."""
    return Library("own-rounded", instructions("rounded"), own_product_of_rounded)


def instructions(precision: str) -> str:
    """Instructions of products of this precision: fp32, bf16, or rounded, bfloat16 without pairs."""
    if precision == "bf16" and native():
        return "avx512-bf16"
    return blocking().instructions + ("" if precision == "fp32" else ", rounded")


def blas(name: str) -> Library:
    """The library "mkl" or "openblas"; else MKL where its wheel is installed, else SciPy's OpenBLAS.

    Raises MachineError if the requested library is not installed.
    """
    if name not in ("mkl", "openblas"):
        name = "mkl" if platform.machine() == "x86_64" and _mkl_path() is not None else "openblas"
    return _mkl() if name == "mkl" else _openblas()


def available(precision: str = "fp32") -> list[Library]:
    """Libraries for products of this precision, our own first."""
    first = blas("auto")
    if precision == "bf16":
        found = [ours(precision)]
        if found[0].entry is own_product_of_pairs:
            found.append(rounded())
        return found if first.name == "openblas" else [*found, _mkl(precision)]
    return [ours(), first] if first.name == "openblas" else [ours(), first, blas("openblas")]


def load(name: str, precision: str = "fp32") -> list[Library]:
    """Candidates for products of this precision: all libraries for "auto", else the one named; our own where that one
    does not support the precision.

    Raises MachineError if the requested library is not installed.
    """
    if name == "auto":
        return available(precision)
    if precision == "bf16":
        return [_mkl(precision) if name == "mkl" else ours(precision)]
    return [ours() if name == "own" else blas(name)]


def _mkl_path() -> Path | None:
    try:
        files = importlib.metadata.files("mkl") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    found = [Path(str(f.locate())).resolve() for f in files if f.name.startswith("libmkl_rt.so")]
    return found[0] if found else None


def _mkl(precision: str = "fp32") -> Library:
    path = _mkl_path()
    if path is None:
        raise MachineError("blas = 'mkl' needs the PyPI package mkl (x86-64 Linux); it is not installed")
    name, entry = (
        ("gemm_bf16bf16f32_", product_of_rounded) if precision == "bf16" else ("sgemm_", product_of_floats)
    )
    return Library("mkl", importlib.metadata.version("mkl"), entry, functools.partial(_find_in_mkl, path, name))


def _find_in_mkl(path: Path, name: str) -> int:
    library = ctypes.CDLL(str(path))
    library.MKL_Set_Threading_Layer(ctypes.c_int(1))  # sequential; before the first product
    library.MKL_Set_Interface_Layer(ctypes.c_int(0))  # integers of 32 bits, whatever the environment says
    return int(ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0)


def _openblas() -> Library:
    """SciPy's, whose file names its build. It is not asked for its version, since it would have to be loaded."""
    path = _openblas_path()
    build = path.stem.partition("-")[2] if path else "unknown build"
    version = f"{build} of SciPy {importlib.metadata.version('scipy')}"
    return Library("openblas", version, product_of_floats, _find_in_openblas)


def _find_in_openblas() -> int:
    import threadpoolctl  # only here: small runs need no library

    path = _openblas_path()
    addresses.check(OPENBLAS_BYTES + BUFFER_BYTES * len(os.sched_getaffinity(0)))
    library = ctypes.CDLL(str(path)) if path else None
    function: Any = getattr(library, "scipy_sgemm_", None)
    address = ctypes.cast(function, ctypes.c_void_p).value if function else _sgemm_of_scipy()
    # BLAS libraries only: an OpenMP runtime that is queried for its threads adopts the calling thread and binds it.
    threadpoolctl.ThreadpoolController().select(user_api="blas").limit(limits=1)
    return int(address or 0)


def _openblas_path() -> Path | None:
    """Path of the OpenBLAS in SciPy's wheel. SciPy is not imported, since that takes longer than many runs' start."""
    scipy = importlib.util.find_spec("scipy")
    if scipy is None or scipy.origin is None:
        return None
    return next((Path(scipy.origin).parents[1] / "scipy.libs").glob("libscipy_openblas-*.so"), None)


def _sgemm_of_scipy() -> int:
    """Address of the `sgemm` that SciPy calls, for any BLAS that it is linked with."""
    import scipy.linalg.cython_blas as cython_blas

    capsule: Any = cython_blas.__pyx_capi__["sgemm"]
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype, api.PyCapsule_GetName.argtypes = ctypes.c_char_p, [ctypes.py_object]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    return int(api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule)))
