"""/api/v1/analysis/history/series: series, their points and their changes."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Query
from pydantic import AfterValidator
from starlette.responses import Response

from taskloom.analysis.comparison import NOISE_FLOOR
from taskloom.analysis.history import SeriesChanges
from taskloom.contract.analysis import AlertState
from taskloom.contract.bodies import MOST_ID
from taskloom.contract.series import SeriesPage, SeriesRow, SeriesRunPage
from taskloom.server.access.scopes import READERS
from taskloom.server.context import Ctx, Id, Paged
from taskloom.server.errors import NotFound
from taskloom.server.read.analysis.answers import COMPUTED, Asks, of_series
from taskloom.server.read.analysis.routes import Latest, NoiseFloor
from taskloom.server.read.history import listing
from taskloom.server.read.history.fields import SERIES_FIELDS
from taskloom.server.read.lists import parameters
from taskloom.server.read.lists.grammar import Tree
from taskloom.server.read.lists.parameters import Periods, Total
from taskloom.server.routing import Router

router = Router("/analysis/history/series", tag="history")

Where = Annotated[Tree | None, parameters.where(SERIES_FIELDS)]


async def _filters(
    where: Where,
    node: Annotated[str | None, Query(max_length=200, description="the machine")] = None,
    alert: Annotated[list[AlertState] | None, Query(description="with an alert in one of these states")] = None,
    run_id: Annotated[int | None, Query(ge=1, le=MOST_ID, description="the series of this run")] = None,
    threshold: Annotated[bool | None, Query(description="true: only with a threshold; false: only without")] = None,
) -> listing.Filters:
    return listing.Filters(node, where, alert or (), run_id, threshold)


@router.get("", READERS)
def index(
    context: Ctx,
    page: Paged,
    filters: Annotated[listing.Filters, Depends(_filters)],
    sort: Annotated[str, AfterValidator(listing.SORTS.check), listing.SORTS.query] = "-last_at",
    total: Total = False,
) -> SeriesPage:
    """List series of runs of one configuration on one machine, newest run first, without points."""
    return listing.page(context.database, filters, sort, total, page.cursor, page.limit)


@router.get("/{series_id}", READERS, errors=(NotFound,))
def show(context: Ctx, series_id: Id) -> SeriesRow:
    """Show a series without its points."""
    return listing.show(context.database, series_id)


@router.get("/{series_id}/points", READERS, errors=(NotFound,))
def points(
    context: Ctx,
    series_id: Id,
    page: Paged,
    period: Periods,
    sort: Annotated[listing.PointSort, Query(description="-finished_at: the newest first")] = "finished_at",
    op: Annotated[
        str | None, Query(max_length=100, description="an operation, whose time each point then has as `op_s`")
    ] = None,
) -> SeriesRunPage:
    """List the points of a series, one per run, oldest first, with every stored metric."""
    return listing.points(context.database, series_id, period, sort, page.cursor, page.limit, op)


@router.get("/{series_id}/changes", READERS, errors=(*COMPUTED, NotFound), response_model=SeriesChanges)
async def changes(
    context: Ctx, ask: Asks, series_id: Id, noise_floor: NoiseFloor = NOISE_FLOOR, limit: Latest = listing.LATEST
) -> Response:
    """List the changes of level in a series' latest runs, and the results of the fresh runs of slowdowns."""
    commits_url = context.settings.commits_url
    return await ask("series", series_id, noise_floor, limit, commits_url, made_from=of_series(series_id))
