"""The list of runs: GET /api/v1/runs"""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Query
from pydantic import AfterValidator, Field

from taskloom.contract.bodies import MOST_ID
from taskloom.contract.runs import RunPage, RunState
from taskloom.server.access.scopes import READERS
from taskloom.server.context import Ctx, Paged
from taskloom.server.read.lists import parameters
from taskloom.server.read.lists.commits import Commit, Trainer
from taskloom.server.read.lists.grammar import Tree
from taskloom.server.read.lists.parameters import Labels, Periods, Total
from taskloom.server.read.runs import listing
from taskloom.server.read.runs.fields import RUN_FIELDS
from taskloom.server.routing import Router

router = Router("/runs", tag="runs")

Where = Annotated[Tree | None, parameters.where(RUN_FIELDS)]


async def _filters(
    period: Periods,
    experiment_id: Annotated[int | None, Query(ge=1, le=MOST_ID)] = None,
    run: Annotated[
        list[Annotated[int, Field(ge=1, le=MOST_ID)]] | None,
        Query(max_length=500, description="ids of runs, of any experiments; may be given several times"),
    ] = None,
    state: Annotated[list[RunState] | None, Query(max_length=20, description="may be given several times")] = None,
    node: Annotated[str | None, Query(max_length=200, description="the node of the run's canonical result")] = None,
    label: Labels = None,
    flagged: Annotated[bool | None, Query(description="whether the run has flagged steps")] = None,
    *,
    where: Where,
    commit: Commit,
    trainer: Trainer,
) -> listing.Filters:
    return listing.Filters(
        experiment_id=experiment_id,
        run_ids=run or (),
        states=state or (),
        node=node,
        labels=label or (),
        where=where,
        flagged=flagged,
        period=period,
        commit=commit,
        trainer=trainer,
    )


RunFilters = Annotated[listing.Filters, Depends(_filters)]
RunSort = Annotated[str, AfterValidator(listing.SORTS.check), listing.SORTS.query]


@router.get("", READERS)
def index(
    context: Ctx,
    page: Paged,
    filters: RunFilters,
    sort: RunSort = "id",
    total: Total = False,
) -> RunPage:
    """List runs in the order in which they were planned, or sorted by `sort`: `-id` gives the newest first.

    `since` and `until` limit the time of submission.
    """
    return listing.page(context.database, filters, sort, total, page.cursor, page.limit)
