"""Conditional requests (RFC 9110): the ETag of an answer is a hash of its content."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Coroutine
from typing import Any

from anyio import to_thread
from fastapi import Request, Response

Handle = Callable[[Request], Coroutine[Any, Any, Response]]
INLINE_BYTES = 256 << 10  # larger answers are hashed on a thread
NOT_MODIFIED: dict[int | str, Any] = {304: {"description": "the answer still has the ETag in If-None-Match"}}
PARAMETER: dict[str, Any] = {
    "name": "if-none-match",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "title": "If-None-Match"},
    "description": "the ETag of an answer that the client has",
}


def validated(handle: Handle) -> Handle:
    """A handler whose answers in memory have an ETag; 304 if the client has it."""

    async def answer(request: Request) -> Response:
        found = await handle(request)
        body = getattr(found, "body", None)  # streamed answers have none
        if found.status_code != 200 or body is None or "ETag" in found.headers:
            return found
        etag = await to_thread.run_sync(_etag, body) if len(body) > INLINE_BYTES else _etag(body)
        found.headers["ETag"] = f'"{etag}"'
        found.headers["Cache-Control"] = "no-cache"
        if etag not in request.headers.get("If-None-Match", ""):
            return found
        return Response(status_code=304, headers={"ETag": f'"{etag}"', "Cache-Control": "no-cache"})

    return answer


def _etag(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()[:32]
