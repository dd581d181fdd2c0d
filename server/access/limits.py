"""The outermost layer: bodies no larger than allowed, and exceptions that nobody expected turned into problems.

Bodies are read whole; but an artifact's is streamed by its route, which has a limit of its own.
"""

from __future__ import annotations

import re
from collections.abc import MutableMapping
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from taskloom.server.errors import BodyTooLarge
from taskloom.server.problems import internal_problem, problem
from taskloom.server.settings import Settings

RESULT = re.compile(r"/api/v1/attempts/[^/]+/result")
ARTIFACT = re.compile(r"/api/v1/attempts/[^/]+/artifacts/[^/]+")


class Limits:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app, self._settings = app, settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if not (scope["method"] == "PUT" and ARTIFACT.fullmatch(scope["path"])):
            is_result = RESULT.fullmatch(scope["path"])
            limit = self._settings.max_result_bytes if is_result else self._settings.max_body_bytes
            body = await _read(receive, limit)
            if body is None:
                refusal = BodyTooLarge(f"at most {limit} bytes are taken here", max_bytes=limit)
                refusal.headers["Connection"] = "close"
                await problem(refusal, scope["path"])(scope, receive, send)
                return
            receive = _replay(body, receive)
        started = False

        async def watch(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, watch)
        except Exception:
            answer = internal_problem(scope["path"])
            if not started:
                await answer(scope, receive, send)


async def _read(receive: Receive, limit: int) -> bytes | None:
    """The whole body, or None if it is larger than allowed."""
    parts: list[bytes] = []
    size = 0
    while True:
        message: MutableMapping[str, Any] = await receive()
        if message["type"] != "http.request":
            return b"".join(parts)
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > limit:
            return None
        if not message.get("more_body", False):
            return b"".join(parts)


def _replay(body: bytes, receive: Receive) -> Receive:
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
