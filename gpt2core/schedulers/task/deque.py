"""A work-stealing deque of node numbers on plain memory: the owner pushes and takes at one end, thieves steal at the
other. It holds at most `mask + 1` numbers and never grows: a node is ready at most once at a time.

Source: Chase & Lev 2005, with the memory orders of Le et al. 2013.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpt2core.compile.atomics import compare_exchange, fence, load_acquire, load_relaxed, store_relaxed, store_release
from gpt2core.compile.jit import inlined, runtime

TOP, BOTTOM, CELLS = 0, 64, 128  # bytes
EMPTY = -1


def new_deques(threads: int, capacity: int) -> tuple[NDArray[np.int64], int]:
    """(arrays, mask): rows for 2 * threads deques, and the mask of their rings, a power of two of `capacity` or more.

    A thread has two: row t for urgent nodes, row threads + t for fillers (see replay.flatten).
    """
    size = 1 << max(3, (capacity - 1).bit_length())
    return np.zeros((2 * threads, CELLS // 8 + size + 8), np.int64), size - 1


@inlined
def size(deque):
    """Any thread: the number of nodes, which may be outdated."""
    return load_relaxed(deque + BOTTOM) - load_relaxed(deque + TOP)


@runtime
def push(deque, mask, node):
    """Owner: add a node."""
    bottom = load_relaxed(deque + BOTTOM)
    store_relaxed(deque + CELLS + 8 * (bottom & mask), node)
    store_release(deque + BOTTOM, bottom + 1)


@runtime
def take(deque, mask):
    """Owner: remove the node added last, or EMPTY."""
    bottom = load_relaxed(deque + BOTTOM) - 1
    store_relaxed(deque + BOTTOM, bottom)
    fence()
    top = load_relaxed(deque + TOP)
    if top > bottom:
        store_relaxed(deque + BOTTOM, bottom + 1)
        return EMPTY
    node = load_relaxed(deque + CELLS + 8 * (bottom & mask))
    if top == bottom:
        if not compare_exchange(deque + TOP, top, top + 1):
            node = EMPTY
        store_relaxed(deque + BOTTOM, bottom + 1)
    return node


@runtime
def steal(deque, mask):
    """Any thread: remove the node added first, or EMPTY if there is none or another thread got it."""
    top = load_acquire(deque + TOP)
    fence()
    if top >= load_acquire(deque + BOTTOM):
        return EMPTY
    node = load_relaxed(deque + CELLS + 8 * (top & mask))
    return node if compare_exchange(deque + TOP, top, top + 1) else EMPTY
