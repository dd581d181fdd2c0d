"""/api/v1/exports"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fastapi import Depends, Query, Request
from pydantic import AfterValidator
from pydantic_core import PydanticCustomError
from starlette.responses import Response

from taskloom.server import queries
from taskloom.server.access.scopes import READERS
from taskloom.server.errors import TooManyExports
from taskloom.server.read.context import Reads
from taskloom.server.read.experiments.routes import ExperimentFilters, ExperimentSort
from taskloom.server.read.exports import formats
from taskloom.server.read.exports.formats import MEDIA_TYPES, Format
from taskloom.server.read.exports.streams import Export
from taskloom.server.read.exports.tables import TABLES, Kind
from taskloom.server.read.runs.routes import RunFilters, RunSort
from taskloom.server.routing import Router

router = Router("/exports", tag="exports")
CONTENT = {media_type: {"schema": {"type": "string", "format": "binary"}} for media_type in MEDIA_TYPES.values()}
Table = Literal["runs", "steps", "ops", "variants", "history", "tuning_trials"]


def _available(format: Format) -> Format:
    """Raises PydanticCustomError."""
    if not formats.is_available(format):
        accepted = "csv or ndjson; for the other formats, install taskloom[exports] on the server"
        raise PydanticCustomError("format", "{accepted}", {"accepted": accepted})
    return format


def _names(example: str) -> Any:
    return Query(max_length=2500, description="names of columns, in the desired order", examples=[example])


AsFormat = Annotated[
    Format, AfterValidator(_available), Query(description="parquet and arrow need pyarrow on the server")
]
ANSWER: Any = {
    "errors": (TooManyExports,), "response_class": Response,
    "responses": {200: {"description": "the table, streamed", "content": CONTENT}},
}  # fmt: skip


def _chosen(request: Request, table: str, columns: str | None) -> Mapping[str, Kind]:
    known = TABLES[table].columns
    if columns is None:
        return known
    names = list(dict.fromkeys(name.strip() for name in columns.split(",")))
    unknown = [name for name in names if name not in known]
    if unknown:
        queries.refuse(request, [queries.entry("columns", ", ".join(unknown), "columns among " + ", ".join(known))])
    return {name: known[name] for name in names if name in known}


async def _columns(
    request: Request, table: Table, columns: Annotated[str | None, _names("run_id,step_s")] = None
) -> Mapping[str, Kind]:
    return _chosen(request, table, columns)


async def _columns_of_experiments(
    request: Request, columns: Annotated[str | None, _names("experiment_id,ratio")] = None
) -> Mapping[str, Kind]:
    return _chosen(request, "experiments", columns)


@router.get("/experiments", READERS, **ANSWER)
async def experiments(
    reading: Reads,
    filters: ExperimentFilters,
    columns: Annotated[Mapping[str, Kind], Depends(_columns_of_experiments)],
    format: AsFormat = "csv",
    sort: ExperimentSort = "id",
) -> Response:
    """Stream the list of experiments as a tidy table with flat columns, with their verdicts."""
    headers = {"Content-Disposition": f'attachment; filename="experiments.{format}"'}
    return reading.exports.answer(Export("experiments", format, columns, filters, sort), headers)


@router.get("/{table}", READERS, **ANSWER)
async def show(
    reading: Reads,
    table: Table,
    filters: RunFilters,
    columns: Annotated[Mapping[str, Kind], Depends(_columns)],
    format: AsFormat = "csv",
    sort: RunSort = "id",
) -> Response:
    """Stream a tidy table with flat columns: one row for each run, step, op, variant, trial, or point of a history.

    The filters select runs. For variants, only `experiment_id` and the times apply, and they select experiments.
    """
    name = table if filters.experiment_id is None else f"experiment-{filters.experiment_id}-{table}"
    headers = {"Content-Disposition": f'attachment; filename="{name}.{format}"'}
    return reading.exports.answer(Export(table, format, columns, filters, sort), headers)
