"""Gives every request an id, a line in the log and a count in the metrics."""

from __future__ import annotations

import logging
import re
import time
import uuid

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from taskloom.server.logs import request_id
from taskloom.server.metrics import Metrics
from taskloom.server.routing import Route

HEADER = "X-Request-Id"
GIVEN = re.compile(r"[A-Za-z0-9._-]{1,64}")
log = logging.getLogger("taskloom.requests")


class Observing:
    """ASGI middleware, the outermost."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get(HEADER, "")
        identity = given if GIVEN.fullmatch(given) else uuid.uuid4().hex
        token = request_id.set(identity)
        scope.setdefault("state", {})  # a problem stores its type there
        started, status = time.monotonic(), 499  # nginx's status for a client that has disconnected

        async def with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[HEADER] = identity
            await send(message)

        try:
            await self._app(scope, receive, with_id)
        finally:
            self._note(scope, status, time.monotonic() - started)
            request_id.reset(token)

    def _note(self, scope: Scope, status: int, duration_s: float) -> None:
        route = scope.get("route")
        name, routine = (route.operation_name, route.routine) if isinstance(route, Route) else ("none", False)
        self._metrics.note(name, status, duration_s, scope["state"].get("problem"))
        level = logging.DEBUG if routine and status < 400 else logging.INFO
        # The query is left out, since the path is enough to find a request.
        fields = {"method": scope["method"], "path": scope["path"], "status": status}
        text = "%s %s: %d"
        log.log(level, text, *fields.values(), extra={"fields": {**fields, "duration_s": round(duration_s, 6)}})
