"""The list of experiments, one of them, and a badge: GET /api/v1/experiments, GET /api/v1/badges/verdict.svg"""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Query
from pydantic import AfterValidator
from starlette.responses import Response

from taskloom.analysis.report import badge as badges
from taskloom.analysis.workload import Workload
from taskloom.contract.experiments import ExperimentDetail, ExperimentPage, Tag
from taskloom.contract.variants import VariantTable
from taskloom.server.access.scopes import READERS
from taskloom.server.context import Ctx, Id, Paged
from taskloom.server.errors import NotFound
from taskloom.server.read.analysis.answers import COMPUTED, Asks, of_experiments
from taskloom.server.read.context import Reads
from taskloom.server.read.experiments import listing
from taskloom.server.read.experiments.fields import EXPERIMENT_FIELDS
from taskloom.server.read.lists import parameters
from taskloom.server.read.lists.commits import Commit
from taskloom.server.read.lists.grammar import Tree
from taskloom.server.read.lists.parameters import Labels, Periods, Total
from taskloom.server.routing import Router

router = Router("/experiments", tag="experiments")
badges_router = Router("/badges", tag="experiments")

Where = Annotated[Tree | None, parameters.where(EXPERIMENT_FIELDS)]


async def _filters(
    period: Periods,
    state: Annotated[list[listing.State] | None, Query(max_length=20, description="may be given several times")] = None,
    name: Annotated[str | None, Query(max_length=200, description="part of the name, in any case")] = None,
    submitter: Annotated[
        str | None, Query(max_length=200, description="key:ID, user:NAME, local, alerts or calibrations")
    ] = None,
    group: Annotated[str | None, Query(max_length=100, description="group of the submitter")] = None,
    label: Labels = None,
    tag: Annotated[list[Tag] | None, Query(max_length=20, description="a tag; several: all must match")] = None,
    *,
    where: Where,
    commit: Commit,
) -> listing.Filters:
    return listing.Filters(
        states=state or (),
        name=name,
        submitter=submitter,
        group=group,
        labels=label or (),
        tags=tag or (),
        where=where,
        period=period,
        commit=commit,
    )


ExperimentFilters = Annotated[listing.Filters, Depends(_filters)]
ExperimentSort = Annotated[str, AfterValidator(listing.SORTS.check), listing.SORTS.query]


@router.get("", READERS)
def index(
    context: Ctx,
    reading: Reads,
    page: Paged,
    filters: ExperimentFilters,
    sort: ExperimentSort = "-id",
    total: Total = False,
) -> ExperimentPage:
    """List experiments, newest first or sorted by `sort`."""
    return listing.page(context.database, reading.etas, filters, sort, total, page.cursor, page.limit)


@router.get("/{experiment_id}", READERS, errors=(NotFound,))
def show(context: Ctx, reading: Reads, experiment_id: Id) -> ExperimentDetail:
    """Show an experiment with its request and the number of its runs by state."""
    return listing.show(context.database, reading.etas, experiment_id)


@router.get("/{experiment_id}/variants", READERS, errors=(*COMPUTED, NotFound), response_model=VariantTable)
async def variants(ask: Asks, experiment_id: Id) -> Response:
    """List every variant with its counts and figures, one flat row each."""
    return await ask("variants", experiment_id, made_from=of_experiments(experiment_id))


@router.get("/{experiment_id}/workload", READERS, errors=(*COMPUTED, NotFound), response_model=Workload)
async def workload(ask: Asks, experiment_id: Id) -> Response:
    """Show the workload of each network of an experiment: time by op and phase, memory, rates, counters.

    It has training beside inference, real beside generated data, and schedulers beside each other. An experiment of
    any request has it; template `workload` makes the runs.
    """
    return await ask("workload", experiment_id, made_from=of_experiments(experiment_id))


@badges_router.get(
    "/verdict.svg",
    READERS,
    response_class=Response,
    responses={200: {"description": "an SVG image (image/svg+xml)"}},  # generators of clients know no images
)
def badge(
    context: Ctx,
    filters: ExperimentFilters,
    text: Annotated[str, Query(max_length=100, description="the left part of the badge")] = "taskloom",
) -> Response:
    """Show the verdict of the newest ended experiment that the filters select, as a badge."""
    found = listing.newest_verdict(context.database, filters)
    if found is None:
        image = badges.badge(text, "no verdict")
    else:
        image = badges.badge(text, badges.message(found.verdict, found.ratio), found.verdict)
    return Response(image, media_type="image/svg+xml", headers={"Cache-Control": "no-cache"})
