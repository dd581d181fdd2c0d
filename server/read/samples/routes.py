"""/api/v1/samples"""

from __future__ import annotations

from typing import Annotated, Literal

from anyio import to_thread
from fastapi import Query
from starlette.responses import Response, StreamingResponse

from taskloom.contract.samples import SamplesPage
from taskloom.server import paging
from taskloom.server.access.scopes import READERS
from taskloom.server.context import Ctx, Cursor
from taskloom.server.errors import NotFound
from taskloom.server.read.analysis.answers import COMPUTED, Asks, of_selections
from taskloom.server.read.analysis.selection import SYNTAX, parse
from taskloom.server.read.samples import raw_samples
from taskloom.server.routing import Router

router = Router("/samples", tag="samples")
NDJSON = "application/x-ndjson"


@router.get(
    "",
    READERS,
    errors=(*COMPUTED, NotFound),
    response_model=SamplesPage,
    responses={200: {"description": "samples", "content": {NDJSON: {"schema": {"type": "string"}}}}},
)
async def index(
    context: Ctx,
    ask: Asks,
    runs: Annotated[str, Query(min_length=1, max_length=2500, description=SYNTAX)],
    cursor: Cursor = None,
    limit: Annotated[int | None, Query(ge=1, description="largest number of runs")] = None,
    format: Annotated[Literal["json", "ndjson"], Query(description="one document, or one line per run")] = "json",
) -> Response:
    """Get every step of the selected runs that have succeeded, in the order in which they were planned.

    NDJSON lines are streamed. The last line is `{"next_cursor": ...}`; a stream without it is incomplete.
    """
    selection, settings = parse(runs, "runs"), context.settings
    if format == "json":
        most = limit or min(paging.DEFAULT_LIMIT, settings.max_page)
        paging.check_limit(most, settings.max_page)
        return await ask("samples", runs, cursor, most, made_from=of_selections(selection))
    most = limit or settings.max_runs
    paging.check_limit(most, settings.max_runs)
    chosen, more = await to_thread.run_sync(raw_samples.select_ids, context.database, selection, cursor, most)
    return StreamingResponse(raw_samples.lines(context.database, chosen, more), media_type=NDJSON)
