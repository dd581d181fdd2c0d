"""/api/v1/samples"""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from starlette.responses import Response, StreamingResponse

from taskloom.contract.samples import SamplesPage
from taskloom.server import paging
from taskloom.server.context import Ctx, Cursor
from taskloom.server.errors import BadCursor, InvalidRequest, NotFound, PageTooLarge
from taskloom.server.problems import responses
from taskloom.server.read.analysis.selection import SYNTAX, parse
from taskloom.server.read.samples import service

router = APIRouter(prefix="/samples", tags=["samples"])
NDJSON = "application/x-ndjson"


@router.get(
    "",
    response_model=SamplesPage,
    responses={
        200: {"description": "samples", "content": {NDJSON: {}}},
        **responses(InvalidRequest, NotFound, BadCursor, PageTooLarge),
    },
)
def index(
    context: Ctx,
    runs: Annotated[str, Query(min_length=1, max_length=2500, description=SYNTAX)],
    cursor: Cursor = None,
    limit: Annotated[int | None, Query(ge=1, description="runs at most")] = None,
    format: Annotated[Literal["json", "ndjson"], Query(description="one document, or a run a line")] = "json",
) -> SamplesPage | Response:
    """Every step of many runs: of those selected that have succeeded, in the order in which they were planned.

    As lines they are streamed; the last line is `{"next_cursor": ...}`, and without it something is missing.
    """
    selection, settings = parse(runs, "runs"), context.settings
    if format == "json":
        wanted = limit or min(paging.DEFAULT_LIMIT, settings.max_page)
        paging.check_limit(wanted, settings.max_page)
        return service.page(context.database, selection, cursor, wanted, settings.max_samples)
    wanted = limit or settings.max_runs
    paging.check_limit(wanted, settings.max_runs)
    chosen, more = service.select_ids(context.database, selection, cursor, wanted)
    return StreamingResponse(service.lines(context.database, chosen, more), media_type=NDJSON)
