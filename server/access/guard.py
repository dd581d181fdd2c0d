"""Steps before every route: authenticate the caller from the headers, then read the body within its limits. Work stops
when the client disconnects. Readers take turns (turns.py), so that claims and heartbeats go first.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeVar

import anyio
from anyio import to_thread
from fastapi import Request, Response
from starlette.types import Message, Receive

from taskloom.server import values
from taskloom.server.access import auth, bodies
from taskloom.server.access.scopes import Access
from taskloom.server.context import Context
from taskloom.server.settings import Settings

T = TypeVar("T")
Handle = Callable[[Request], Coroutine[Any, Any, Response]]
GONE = 499  # nginx's status for a client that has disconnected
INLINE_BYTES = 16 << 10  # smaller bodies are parsed in the event loop, where a thread would cost more
BodyLimit = Callable[[Settings], int]


class Guarded(Protocol):
    """Declarations of a route."""

    access: Access
    body_field: Any  # None: no body, or a streamed one
    body_limit: BodyLimit
    streams_body: bool


def guarded(route: Guarded, handle: Handle) -> Handle:
    """The route's handler, preceded by these steps."""
    return functools.partial(_guarded, route, handle)


class _JsonRequest(Request):
    """A request whose body has been read. `json` raises an error beyond the limits of values.py."""

    def __init__(self, request: Request, body: bytes) -> None:
        super().__init__(request.scope, request.receive)
        self._body = body

    async def json(self) -> Any:
        if len(self._body) <= INLINE_BYTES:
            return values.parse(self._body, values.REQUEST)
        return await to_thread.run_sync(values.parse, self._body, values.REQUEST)


async def _guarded(route: Guarded, handle: Handle, request: Request) -> Response:
    context: Context = request.app.state.context
    if _takes_turns(route):
        return await _answer(request, _in_turn(context, route, handle, request))
    request.state.caller = await auth.authorise(request, context, route.access)
    with context.in_flight.share() as share:
        if route.streams_body:
            share.take(bodies.STREAM_BYTES)
            return await handle(Request(request.scope, _paced(request.receive, context.settings)))
        if route.body_field is not None:
            limit_bytes = route.body_limit(context.settings)
            bodies.check_declared(request.headers.get("Content-Length"), limit_bytes)
            bodies.check_coding(request.headers.get("Content-Encoding"))
            body = await bodies.read(_paced(request.receive, context.settings), limit_bytes, share)
            request = _JsonRequest(request, body)
        return await _answer(request, handle(request))


def _takes_turns(route: Guarded) -> bool:
    """Whether its requests take turns: those of readers, without a body that a client could send slowly."""
    is_for_readers = "read" in route.access.scopes and "worker" not in route.access.scopes
    return is_for_readers and route.body_field is None and not route.streams_body


async def _in_turn(context: Context, route: Guarded, handle: Handle, request: Request) -> Response:
    # Before authentication: 240 clients that connected at once delayed claims by 0.5 s.
    async with context.turns.taken():
        request.state.caller = await auth.authorise(request, context, route.access)
        return await handle(request)


def _paced(receive: Receive, settings: Settings) -> Receive:
    return bodies.paced(receive, settings.body_timeout_s, settings.min_body_rate)


async def _answer(request: Request, answer: Awaitable[Response]) -> Response:
    return await while_connected(request.receive, answer) or Response(status_code=GONE)


async def while_connected(receive: Receive, work: Awaitable[T]) -> T | None:
    """The result; None if the client disconnects. Then work that waits for a thread does not start, and work on a
    thread can detect the cancellation with anyio.from_thread.check_cancelled.
    """
    with anyio.CancelScope() as scope:
        watcher = asyncio.create_task(_watch(receive, scope))
        try:
            return await work
        finally:
            watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watcher
    return None


async def _watch(receive: Receive, scope: anyio.CancelScope) -> None:
    message: Message = {"type": ""}
    while message["type"] != "http.disconnect":
        message = await receive()
    scope.cancel()
