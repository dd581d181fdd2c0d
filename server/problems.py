"""Error answers: RFC 9457 problem+json."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import DataError, DBAPIError, OperationalError
from sqlalchemy.exc import InternalError as DatabaseInternalError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gpt2core.process import streams
from taskloom.contract.bodies import MOST_ERRORS
from taskloom.contract.problems import ProblemType
from taskloom.server.db import trouble
from taskloom.server.errors import (
    PROBLEM_TYPES,
    BodyTooComplex,
    BodyTooSlow,
    DatabaseUnavailable,
    InternalError,
    InvalidRequest,
    MalformedBody,
    MethodNotAllowed,
    NotFound,
    OutOfResources,
    RequestRefused,
    ServerBusy,
    ServerError,
    UnknownMediaType,
)

MEDIA_TYPE = "application/problem+json"
METHODS = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")
log = logging.getLogger("taskloom.server")


def problem(error: ServerError, instance: str, status: int | None = None) -> Response:
    """The answer for an error."""
    body = {
        "type": f"/problems/{error.slug}",
        "title": error.title,
        "status": status or error.status,
        "detail": str(error),
        "instance": instance,
        **error.fields,
    }
    # ASCII: an echoed value may not be valid UTF-8.
    content = json.dumps(body, default=str).encode("ascii")
    return Response(content, body["status"], error.headers, MEDIA_TYPE)


def unexpected(error: Exception, instance: str) -> ServerError:
    """The problem of an unexpected exception: what has run out, or an id, since its traceback goes only to the log."""
    if streams.is_exhausted(error):
        log.error("out of resources at %s: %r", instance, error)
        return OutOfResources()
    error_id = uuid.uuid4().hex
    log.exception("error %s at %s", error_id, instance)
    return InternalError(error_id=error_id)


def responses(*kinds: type[ServerError]) -> dict[int | str, dict[str, Any]]:
    """OpenAPI's `responses` for the problems that an operation may answer with, each with an example."""
    out: dict[int | str, dict[str, Any]] = {}
    both: tuple[type[ServerError], ...] = (*kinds, InternalError, DatabaseUnavailable, OutOfResources)
    if MalformedBody in kinds:  # it has a body
        both = (*both, UnknownMediaType, BodyTooComplex, BodyTooSlow, ServerBusy)
    for kind in both:
        content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}, "examples": {}}}
        entry = out.setdefault(kind.status, {"description": "", "content": content})
        entry["description"] = ", ".join(filter(None, [entry["description"], kind.title]))
        entry["content"][MEDIA_TYPE]["examples"][kind.slug] = {
            "value": {
                "type": f"/problems/{kind.slug}",
                "title": kind.title,
                "status": kind.status,
                "detail": " ".join((kind.__doc__ or "").split()),
                "instance": "/api/v1/...",
            }
        }
    return out


def describe(slug: str) -> ProblemType:
    """Answer of GET /problems/<slug>. Raises NotFound."""
    kind = PROBLEM_TYPES.get(slug)
    if kind is None:
        raise NotFound(f"no problem type is called {slug}")
    described = " ".join((kind.__doc__ or "").split())
    return ProblemType(type=f"/problems/{slug}", title=kind.title, status=kind.status, description=described)


def pointer(parts: Sequence[str | int]) -> str:
    """RFC 6901."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def _resolve(loc: tuple[str | int, ...], body: object, keep_last: bool) -> list[str | int]:
    """The part of pydantic's location that exists in the body, without names of union branches."""
    parts: list[str | int] = []
    for i, part in enumerate(loc):
        found = (isinstance(body, Mapping) and part in body) or (
            isinstance(body, list) and isinstance(part, int) and part < len(body)
        )
        if found:
            body = body[part]  # type: ignore[index]
            parts.append(part)
        elif keep_last and i == len(loc) - 1:
            parts.append(part)
    return parts


def from_validation(error: RequestValidationError) -> ServerError:
    """One entry per rejected value, up to MOST_ERRORS, with its pointer into the body, or its place and name."""
    if isinstance(error.body, bytes):  # FastAPI parses only bodies declared as JSON
        return UnknownMediaType("a body is JSON: send Content-Type: application/json", accepted=["application/json"])
    found = error.errors()
    malformed = next((item for item in found if item["type"] == "json_invalid"), None)
    if malformed is not None:
        return MalformedBody(f"not JSON: {malformed['ctx']['error']} at character {malformed['loc'][-1]}")
    return InvalidRequest(entries(found, error.body))


def entries(found: Iterable[Mapping[str, Any]], body: object) -> list[dict[str, Any]]:
    """An entry for each value that pydantic refused, up to MOST_ERRORS."""
    named: dict[str, dict[str, Any]] = {}
    for item in found:
        place, *rest = item["loc"]
        if place == "body":
            parts = _resolve(tuple(rest), body, item["type"] in ("missing", "extra_forbidden"))
            names = [part for part in parts if isinstance(part, str)]  # an item of a list has its list's name
            where, name = pointer(parts), names[-1] if names else "body"
        else:
            where, name = f"#{place}/{'/'.join(map(str, rest))}", str(rest[0] if rest else place)
        named.setdefault(
            where,
            {"pointer": where, "field": name, "value": _shown(item.get("input")), "accepted": item["msg"]},
        )
        if len(named) == MOST_ERRORS:
            break
    return list(named.values())


def _shown(value: object) -> object:
    """The echo of a rejected value; large values are cut."""
    text = json.dumps(value, default=str)
    return value if len(text) <= 200 and "NaN" not in text and "Infinity" not in text else text[:200]


def _methods_at(app: FastAPI, request: Request) -> list[str]:
    def is_taken(method: str) -> bool:
        scope = {**request.scope, "method": "GET" if method == "HEAD" else method}
        return any(route.matches(scope)[0] is Match.FULL for route in app.routes)

    return [method for method in METHODS if is_taken(method)]


class Unexpected:
    """ASGI middleware: an unexpected exception becomes a problem."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def watch(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, watch)
        except Exception as error:
            known = unexpected(error, scope["path"])
            scope["state"]["problem"] = known.slug
            if not started:
                await problem(known, scope["path"])(scope, receive, send)


def install(app: FastAPI) -> None:
    """Answer every error of the app with a problem."""

    def answer(request: Request, error: ServerError, status: int | None = None) -> Response:
        request.state.problem = error.slug
        return problem(error, request.url.path, status)

    async def expected(request: Request, error: Exception) -> Response:
        assert isinstance(error, ServerError)
        return answer(request, error)

    async def validation(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return answer(request, from_validation(error))

    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if isinstance(error.__cause__, ServerError):  # raised while FastAPI read the body
            return answer(request, error.__cause__)
        if error.status_code == 404:
            known: ServerError = NotFound(f"nothing at {request.url.path}")
        elif error.status_code == 405:
            known = MethodNotAllowed(f"{request.method} is not supported at {request.url.path}")
            # Starlette names only the methods of the first route with this path; each route here has one method.
            known.headers["Allow"] = ", ".join(_methods_at(app, request))
            return answer(request, known)
        elif error.status_code == 400:
            known = MalformedBody(str(error.detail))
        else:
            known = RequestRefused(str(error.detail))
        known.headers = dict(error.headers or {})
        return answer(request, known, error.status_code)

    async def unavailable(request: Request, error: Exception) -> Response:
        assert isinstance(error, DBAPIError)
        log.error("database: %s", error)
        return answer(request, DatabaseUnavailable(trouble(error)))

    async def unstorable(request: Request, error: Exception) -> Response:
        log.warning("database: %s", error)
        reason = "a value cannot be stored: a number is out of range, or a text has a null character"
        return answer(request, InvalidRequest([], reason))

    app.add_exception_handler(ServerError, expected)
    app.add_exception_handler(RequestValidationError, validation)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(OperationalError, unavailable)
    app.add_exception_handler(DatabaseInternalError, unavailable)  # PostgreSQL: it is read-only
    app.add_exception_handler(DataError, unstorable)
