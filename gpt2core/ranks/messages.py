"""Starts messages between ranks and looks whether they have arrived: calls of an MPI library from tasks.

One thread at a time calls the library, which needs no more than MPI_THREAD_SERIALIZED. The library never adds
(docs/decisions/0038).
"""

from __future__ import annotations

from typing import Annotated, Any

from gpt2core.compile.atomics import compare_exchange, pause, store_release
from gpt2core.compile.foreign import call_c
from gpt2core.compile.jit import address_of, kernel
from gpt2core.ranks.cells import (
    BYTE,
    COMMUNICATOR,
    COUNT,
    FLAG,
    LOCK,
    OFFSET,
    PEER,
    RECEIVE,
    RECEIVES,
    REQUEST_BYTES,
    SEND,
    STATUSES,
    TAG,
    TEST,
)
from gpt2core.step.signature import Array, Complete, Int64Matrix, Int64s, TileInt

Numbers = Annotated[Any, Array(("float32", "float64"), 1)]


@kernel
def send(
    target: Numbers, source: Numbers, requests: Int64s, exchanges: Int64s, messages: Int64Matrix, mpi: Int64s,
    first: TileInt, last: TileInt,
):  # fmt: skip
    """Start to send and to receive the messages [first, last).

    Writes:   requests (any,), from element `first` on; later, by the library, target (any,)
    Reads:    source (any,), until the messages are complete; messages (any, 5): see layout.Message; mpi: see cells
    Source:   MPI_Isend, MPI_Irecv
    """
    size = address_of(source, 1) - address_of(source, 0)
    while not compare_exchange(address_of(mpi, LOCK), 0, 1):
        pause()
    for number in range(first, last):
        offset, bytes_ = messages[number, OFFSET], messages[number, COUNT] * size
        call, at = mpi[SEND], address_of(source, offset)
        if messages[number, RECEIVES]:
            call, at = mpi[RECEIVE], address_of(target, offset)
        request = address_of(requests, first) + (number - first) * mpi[REQUEST_BYTES]
        call_c(call, (at, bytes_, mpi[BYTE], messages[number, PEER], messages[number, TAG], mpi[COMMUNICATOR], request))
    store_release(address_of(mpi, LOCK), 0)


@kernel
def wait(
    target: Numbers, source: Numbers, requests: Int64s, exchanges: Int64s, mpi: Int64s, first: TileInt, last: TileInt,
):  # fmt: skip
    """Nothing: the task is complete when its messages [first, last) are (see `arrived`)."""


@kernel
def arrived(
    target: Numbers, source: Numbers, requests: Int64s, exchanges: Int64s, mpi: Int64s, first: TileInt, last: TileInt,
) -> Complete:  # fmt: skip
    """Make progress, and answer whether the messages [first, last) are complete; no, while another thread looks.

    Source:   MPI_Testall
    """
    complete = False
    if compare_exchange(address_of(mpi, LOCK), 0, 1):
        call_c(mpi[TEST], (last - first, address_of(requests, first), address_of(mpi, FLAG), mpi[STATUSES]))
        complete = mpi[FLAG] & 0xFFFFFFFF != 0
        store_release(address_of(mpi, LOCK), 0)
    return complete
