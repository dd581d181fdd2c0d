"""Arrays that lie as a run's do: kernels that write whole vectors need them to begin with a line of the cache."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpt2core.compile.line import LINE_BYTES


def on_a_line(array: NDArray[np.float32]) -> NDArray[np.float32]:
    """A copy of the array that begins with a line of the cache."""
    room = np.empty(array.size + LINE_BYTES // array.itemsize, array.dtype)
    first = -room.ctypes.data % LINE_BYTES // array.itemsize
    copy = room[first : first + array.size].reshape(array.shape)
    copy[...] = array
    return copy
