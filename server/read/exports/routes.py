"""/api/v1/exports"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from anyio import to_thread
from fastapi import Query
from starlette.responses import Response, StreamingResponse

from taskloom.server.access.scopes import READERS
from taskloom.server.context import Ctx
from taskloom.server.read.exports import formats
from taskloom.server.read.exports.formats import MEDIA_TYPES, Format
from taskloom.server.read.exports.tables import TABLES, Kind
from taskloom.server.read.lists import parameters
from taskloom.server.read.runs.routes import RunFilters
from taskloom.server.read.runs.service import Sort
from taskloom.server.routing import Router

router = Router("/exports", tag="exports")
CONTENT = {media_type: {"schema": {"type": "string", "format": "binary"}} for media_type in MEDIA_TYPES.values()}


@router.get(
    "/{table}",
    READERS,
    response_class=Response,
    responses={200: {"description": "the table, streamed", "content": CONTENT}},
)
async def show(
    context: Ctx,
    table: Literal["runs", "steps", "ops", "variants", "history", "tuning_trials"],
    filters: RunFilters,
    format: Annotated[Format, Query(description="parquet and arrow need pyarrow on the server")] = "csv",
    columns: Annotated[
        str | None, Query(max_length=2500, description="names of columns, in the desired order",
        examples=["run_id,step_s"])
    ] = None,
    sort: Annotated[Sort, Query(description="order of the runs; with - before it: descending")] = "id",
) -> Response:
    """Stream a tidy table with flat columns: one row for each run, step, op, variant, or point of a history.

    The filters select runs. For variants, only `experiment_id` and the times apply, and they select experiments.
    """
    chosen = TABLES[table]
    wanted = _columns(chosen.columns, columns)
    try:
        pieces = formats.written(format, wanted, chosen.rows(context.database, filters, sort))
    except ImportError:
        accepted = "csv or ndjson; for the other formats, install taskloom[exports] on the server"
        raise parameters.refused("format", format, accepted) from None
    first = await to_thread.run_sync(next, pieces, b"")  # errors are raised before the answer begins
    name = table if filters.experiment_id is None else f"experiment-{filters.experiment_id}-{table}"
    headers = {"Content-Disposition": f'attachment; filename="{name}.{format}"'}
    return StreamingResponse(_after(first, pieces), media_type=MEDIA_TYPES[format], headers=headers)


def _after(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


def _columns(known: Mapping[str, Kind], asked: str | None) -> Mapping[str, Kind]:
    """Raises InvalidRequest."""
    if asked is None:
        return known
    names = list(dict.fromkeys(name.strip() for name in asked.split(",")))
    if not set(names) <= known.keys():
        unknown = ", ".join(name for name in names if name not in known)
        raise parameters.refused("columns", unknown, "columns among " + ", ".join(known))
    return {name: known[name] for name in names}
