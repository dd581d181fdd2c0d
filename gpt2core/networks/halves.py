"""Weights that are bfloat16 in memory: arrays of the uint16 of their bits, filled from float32 part by part.

So a run that keeps no float32 weights needs no memory for them while they are read or drawn.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

AT_ONCE = 1 << 18  # elements


def parts(out: NDArray[Any]) -> Iterator[NDArray[np.float32]]:
    """The parts of an array in their order, flat and float32, each to be filled before the next one is asked for. An
    array of bfloat16 gets each filled part rounded."""
    flat = out.reshape(-1)
    if flat.dtype == np.float32:
        yield flat
        return
    buffer = np.empty(min(flat.size, AT_ONCE), np.float32)
    for first in range(0, flat.size, AT_ONCE):
        part = buffer[: flat.size - first]
        yield part
        flat[first : first + part.size] = rounded(part)


def fill(out: NDArray[Any], values: NDArray[np.float32]) -> None:
    """Copy values into an array of float32, or rounded into one of bfloat16."""
    out[...] = values if out.dtype == np.float32 else rounded(values)


def rounded(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The nearest bfloat16 of each value, ties to even, as its bits. NaN stays NaN."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    upper = bits >> np.uint32(16)
    near = upper & np.uint32(1)
    near += np.uint32(0x7FFF)
    near += bits
    near >>= np.uint32(16)
    nan = np.isnan(values)
    if nan.any():
        near[nan] = upper[nan] | np.uint32(0x40)  # quiet
    return near.astype(np.uint16)


def widened(values: NDArray[Any]) -> NDArray[np.float32]:
    """Float32 values, also of the bits of bfloat16."""
    if values.dtype != np.uint16:
        return values
    return (values.astype(np.uint32) << np.uint32(16)).view(np.float32)
