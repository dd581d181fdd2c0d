"""CORS for named origins, and compressed answers."""

from __future__ import annotations

import re

from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import DEFAULT_EXCLUDED_CONTENT_TYPES, GZipMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from taskloom.server.errors import StartRefused
from taskloom.server.problems import METHODS

GZIP = re.compile(r"(?:x-)?gzip\s*(?:;\s*q\s*=\s*([0-9.]+)\s*)?", re.IGNORECASE)
ORIGIN = re.compile(r"https?://[A-Za-z0-9.\[\]:-]+")
ASKED = ("Authorization", "Content-Type", "Idempotency-Key", "If-None-Match", "Last-Event-ID")
SHOWN = ("Attempt-No", "Content-Disposition", "ETag", "Idempotent-Replayed", "Location", "Retry-After", "X-Request-Id")
PACKED = (
    "application/vnd.apache.parquet", "application/vnd.apache.arrow.file", "application/zip",
    *DEFAULT_EXCLUDED_CONTENT_TYPES,
)  # fmt: skip


def install(app: FastAPI, cors_origins: str) -> None:
    """Compress answers for clients that accept gzip, and allow pages of these origins to read answers. Raises
    StartRefused."""
    app.add_middleware(Compressed)
    origins = [origin.strip() for origin in cors_origins.split(",") if origin.strip()]
    for origin in origins:
        if ORIGIN.fullmatch(origin) is None:
            raise StartRefused(f"TASKLOOM_CORS_ORIGINS: {origin!r} is not an origin such as https://plots.example.org")
    if origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=METHODS,
            allow_headers=ASKED,
            expose_headers=SHOWN,
        )


def takes_gzip(accepted: str) -> bool:
    """Whether a client accepts gzip; it may name gzip only to refuse it (q=0)."""
    found = filter(None, (GZIP.fullmatch(each.strip()) for each in accepted.split(",")))
    return any((each[1] or "1").strip("0.") for each in found)


class Compressed:
    """ASGI middleware: gzip, except for artifacts, which are sent unchanged. What it calls sees `Accept-Encoding` only
    if gzip is accepted."""

    def __init__(self, app: ASGIApp) -> None:
        self._plain = app
        self._compressed = GZipMiddleware(app, minimum_size=1000, compresslevel=4, exclude_content_types=PACKED)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not takes_gzip(",".join(Headers(scope=scope).getlist("Accept-Encoding"))):
            scope["headers"] = [header for header in scope["headers"] if header[0] != b"accept-encoding"]
        is_artifact = scope["type"] == "http" and "/artifacts/" in scope["path"]
        await (self._plain if is_artifact else self._compressed)(scope, receive, send)


class Below:
    """ASGI middleware: sets the path below which a proxy serves this server. The proxy may strip the path or not."""

    def __init__(self, app: ASGIApp, root_path: str) -> None:
        self._app, self._root_path = app, root_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app({**scope, "root_path": self._root_path}, receive, send)
