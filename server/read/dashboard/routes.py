"""/ui: the dashboard. Its files contain no user data, so they need no key; all data comes from the API."""

from __future__ import annotations

import re

from fastapi import Request, Response

from taskloom.server.access.scopes import EVERYBODY
from taskloom.server.errors import NotFound
from taskloom.server.read.dashboard.files import File, Files
from taskloom.server.routing import Router

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' blob:; "
    "worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'"
)
PAGE = re.compile(r"[A-Za-z0-9_-]+")  # names no file
FOREVER = "public, max-age=31536000, immutable"

router = Router(tag="server", below="", any_query=True)


def _sent(request: Request, file: File, caching: str, status: int = 200) -> Response:
    headers = {
        "ETag": file.etag,
        "Cache-Control": caching,
        "Vary": "Accept-Encoding",
        "Content-Security-Policy": POLICY,
    }
    if status == 200 and request.headers.get("If-None-Match") == file.etag:
        return Response(status_code=304, headers=headers)
    content = file.plain
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        content, headers["Content-Encoding"] = file.compressed, "gzip"
    return Response(content, status, media_type=file.media_type, headers=headers)


def _leads_to(address: str) -> Response:
    # Relative, so that it works behind any path prefix.
    return Response(status_code=307, headers={"Location": address})


@router.get("/", EVERYBODY, include_in_schema=False)
async def index() -> Response:
    """Redirect to the dashboard."""
    return _leads_to("ui/")


@router.get("/ui", EVERYBODY, include_in_schema=False)
async def dashboard() -> Response:
    """Redirect to the dashboard's first page."""
    return _leads_to("ui/")


@router.get("/ui/{path:path}", EVERYBODY, errors=(NotFound,), include_in_schema=False)
async def dashboard_file(request: Request, path: str) -> Response:
    """Send a page of the dashboard, or a file below its version."""
    files: Files = request.app.state.reading.dashboard
    if path in files.pages:
        return _sent(request, files.pages[path], "no-cache")
    version, _, name = path.partition("/")
    if version == files.version and name in files.by_path:
        return _sent(request, files.by_path[name], FOREVER)
    if PAGE.fullmatch(path):
        return _sent(request, files.unknown, "no-cache", 404)
    raise NotFound(f"the dashboard has no {path}")
