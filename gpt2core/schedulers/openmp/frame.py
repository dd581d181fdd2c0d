"""The arrays of a loop behind one address: an OpenMP task is a function of one pointer and rebuilds the arrays from it.

A frame is a table of int64 rows: an array's address and up to three dimensions, or an integer.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gpt2core.compile.jit import carray, inlined, pointer_i64
from gpt2core.measure.tracing import Record

Ints = NDArray[np.int64]
CELLS = 4  # of a row


def flatten(values: Sequence[Ints | int]) -> Ints:
    """A row for each array of int64 or integer. The caller keeps the arrays alive."""
    table = np.zeros((len(values), CELLS), np.int64)
    for row, value in zip(table, values, strict=True):
        if isinstance(value, int):
            row[0] = value
        else:
            row[: value.ndim + 1] = value.ctypes.data, *value.shape
    return table


@inlined
def frame_at(address):
    """The frame at an address. Its length is unknown; callers know the numbers of their rows."""
    return carray(pointer_i64(address), (1, CELLS))


@inlined
def vector(frame, row):
    """The array of one dimension in a row."""
    return carray(pointer_i64(frame[row, 0]), (frame[row, 1],))


@inlined
def matrix(frame, row):
    """The array of two dimensions in a row."""
    return carray(pointer_i64(frame[row, 0]), (frame[row, 1], frame[row, 2]))


@inlined
def cube(frame, row):
    """The array of three dimensions in a row."""
    return carray(pointer_i64(frame[row, 0]), (frame[row, 1], frame[row, 2], frame[row, 3]))


@inlined
def record_at(frame, row):
    """The record whose fields are in the rows from `row` on."""
    return Record(
        frame[row, 0],
        vector(frame, row + 1),
        vector(frame, row + 2),
        matrix(frame, row + 3),
        matrix(frame, row + 4),
        cube(frame, row + 5),
        vector(frame, row + 6),
        matrix(frame, row + 7),
        vector(frame, row + 8),
        cube(frame, row + 9),
        matrix(frame, row + 10),
        cube(frame, row + 11),
        matrix(frame, row + 12),
        cube(frame, row + 13),
        matrix(frame, row + 14),
    )
