"""Starts messages between ranks and looks whether they have arrived: calls of an MPI library from tasks.

One thread at a time calls the library, which needs no more than MPI_THREAD_SERIALIZED. The library never adds
(docs/decisions/0038).
"""

from __future__ import annotations

from typing import Annotated, Any

from gpt2core.compile.atomics import compare_exchange, pause, store_release
from gpt2core.compile.clock import ticks
from gpt2core.compile.foreign import call_c
from gpt2core.compile.jit import address_of, inlined, kernel
from gpt2core.ranks.cells import (
    BYTE,
    CALLS,
    COMMUNICATOR,
    COUNT,
    ELAPSED,
    FLAG,
    HELD,
    HOLDING,
    IN_FLIGHT,
    LOCK,
    OFFSET,
    ONGOING,
    PEER,
    RECEIVE,
    RECEIVES,
    REQUEST_BYTES,
    SEND,
    SINCE,
    STATUSES,
    TAG,
    TEST,
)
from gpt2core.step.signature import Array, Complete, Int64Matrix, Int64s, Scalar, Step, TileInt

Numbers = Annotated[Any, Array(("float32", "float64"), 1, flat=True)]


@inlined
def begin_span(traffic, row, span, now):
    """Note that one more exchange is in flight, or holds a thread."""
    if traffic[row, span + ONGOING] == 0:
        traffic[row, span + SINCE] = now
    traffic[row, span + ONGOING] += 1


@inlined
def end_span(traffic, row, span, now):
    """Note that one exchange less is in flight, or holds a thread."""
    traffic[row, span + ONGOING] -= 1
    if traffic[row, span + ONGOING] == 0:
        traffic[row, span + ELAPSED] += now - traffic[row, span + SINCE]


@kernel
def send(
    target: Numbers, source: Numbers, requests: Int64s, exchanges: Int64s, messages: Int64Matrix, mpi: Int64s,
    traffic: Int64Matrix, step: Step, kind: Scalar, kinds: Scalar, first: TileInt, last: TileInt,
):  # fmt: skip
    """Start to send and to receive the messages [first, last), and note when.

    Writes:   requests (any,), from element `first` on; later, by the library, target; traffic (any, 8), rows of
              the step, while no other thread calls the library
    Reads:    source, until the messages are complete; messages (any, 5): see layout.Message; mpi: see cells
    Source:   MPI_Isend, MPI_Irecv
    """
    size = address_of(source, 1) - address_of(source, 0)
    together = (step + 1) * (kinds + 1) - 1
    row = together - kinds + kind
    while not compare_exchange(address_of(mpi, LOCK), 0, 1):
        pause()
    begin = ticks()
    begin_span(traffic, row, IN_FLIGHT, begin)
    begin_span(traffic, together, IN_FLIGHT, begin)
    for number in range(first, last):
        offset, bytes_ = messages[number, OFFSET], messages[number, COUNT] * size
        call, at = mpi[SEND], address_of(source, offset)
        if messages[number, RECEIVES]:
            call, at = mpi[RECEIVE], address_of(target, offset)
        request = address_of(requests, first) + (number - first) * mpi[REQUEST_BYTES]
        call_c(call, (at, bytes_, mpi[BYTE], messages[number, PEER], messages[number, TAG], mpi[COMMUNICATOR], request))
    traffic[row, CALLS] += ticks() - begin
    store_release(address_of(mpi, LOCK), 0)


@kernel
def wait(
    target: Numbers, source: Numbers, requests: Int64s, exchanges: Int64s, mpi: Int64s, traffic: Int64Matrix,
    step: Step, kind: Scalar, kinds: Scalar, first: TileInt, last: TileInt,
):  # fmt: skip
    """Note when the task ran. It is complete when its messages [first, last) are (see `arrived`).

    Writes:   traffic (any, 8), rows of the step, while no other thread calls the library
    """
    row = step * (kinds + 1) + kind
    while not compare_exchange(address_of(mpi, LOCK), 0, 1):
        pause()
    now = ticks()
    begin_span(traffic, row, HELD, now)
    traffic[row, HOLDING] -= now
    store_release(address_of(mpi, LOCK), 0)


@kernel
def arrived(
    target: Numbers, source: Numbers, requests: Int64s, exchanges: Int64s, mpi: Int64s, traffic: Int64Matrix,
    step: Step, kind: Scalar, kinds: Scalar, first: TileInt, last: TileInt,
) -> Complete:  # fmt: skip
    """Make progress, and answer whether the messages [first, last) are complete; no, while another thread looks.

    Writes:   traffic (any, 8), rows of the step, while no other thread calls the library
    Source:   MPI_Testall
    """
    complete = False
    together = (step + 1) * (kinds + 1) - 1
    row = together - kinds + kind
    if compare_exchange(address_of(mpi, LOCK), 0, 1):
        begin = ticks()
        call_c(mpi[TEST], (last - first, address_of(requests, first), address_of(mpi, FLAG), mpi[STATUSES]))
        now = ticks()
        traffic[row, CALLS] += now - begin
        complete = mpi[FLAG] & 0xFFFFFFFF != 0
        if complete:
            end_span(traffic, row, IN_FLIGHT, now)
            end_span(traffic, together, IN_FLIGHT, now)
            end_span(traffic, row, HELD, now)
            traffic[row, HOLDING] += now
        store_release(address_of(mpi, LOCK), 0)
    return complete
