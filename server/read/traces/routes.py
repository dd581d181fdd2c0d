"""A run's trace in the formats of viewers: GET /api/v1/runs/{run_id}/trace"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from typing import Annotated, Literal

from fastapi import Query, Request
from starlette.responses import FileResponse, Response, StreamingResponse

from taskloom.contract.bodies import MOST_ID
from taskloom.server import queries
from taskloom.server.access.scopes import READERS
from taskloom.server.context import Id
from taskloom.server.errors import InvalidRequest, NotFound, UnreadableTrace
from taskloom.server.read.analysis.answers import COMPUTED, JSON, Asks
from taskloom.server.read.traces import conversion
from taskloom.server.routing import Router

router = Router("/runs", tag="artifacts")
ZIP = "application/zip"
CHUNK_BYTES = 1 << 20
CONTENT = {
    JSON: {"schema": {"type": "string", "contentMediaType": "application/json"}},
    ZIP: {"schema": {"type": "string", "format": "binary"}},
}


@router.get(
    "/{run_id}/trace",
    READERS,
    errors=(*COMPUTED, NotFound, UnreadableTrace, InvalidRequest),
    response_class=Response,
    responses={200: {"description": "the trace, streamed", "content": CONTENT}},
)
async def trace(
    request: Request,
    ask: Asks,
    run_id: Id,
    format: Annotated[
        Literal["chrome", "paraver"],
        Query(description="chrome: JSON for Perfetto and chrome://tracing; paraver: .prv, .pcf and .row in a ZIP"),
    ] = "chrome",
    beside: Annotated[
        int | None, Query(ge=1, le=MOST_ID, description="another run in the same Chrome file, its steps aligned")
    ] = None,
) -> Response:
    """Get the timeline of a traced run for trace viewers.

    The raw trace is the run's artifact `trace.json.gz`. A raw trace of more than 8 MiB is not converted.
    """
    if beside is not None and format != "chrome":
        raise InvalidRequest([queries.entry("beside", beside, "format=chrome: a Paraver file shows only one run")])
    run_ids: tuple[int, ...] = (run_id,) if beside is None or beside == run_id else (run_id, beside)
    media_type = JSON if format == "chrome" else ZIP
    made_from = conversion.of_traces(*run_ids)
    found = await ask("trace", run_ids, format, made_from=made_from, media_type=media_type, as_file=True)
    if not isinstance(found, FileResponse):  # the client has it already
        return found
    name = f"run-{'-'.join(map(str, run_ids))}-trace.{'json' if format == 'chrome' else 'zip'}"
    found.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    if format == "paraver":
        return found
    found.headers["Vary"] = "Accept-Encoding"
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        found.headers["Content-Encoding"] = "gzip"  # as it is stored
        return found
    headers = {name: found.headers[name] for name in ("ETag", "Cache-Control", "Content-Disposition", "Vary")}
    return StreamingResponse(_unpacked(str(found.path)), media_type=JSON, headers=headers)


def _unpacked(path: str) -> Iterator[bytes]:
    with gzip.open(path) as file:
        while piece := file.read(CHUNK_BYTES):
            yield piece
