"""/api/v1/runs, except for lists, which are in server/read/runs."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from fastapi.responses import JSONResponse

from taskloom.contract.results import TrainResult
from taskloom.contract.runs import LogPage, ProgressCurve, RunDetail, SampleList, StateChangePage, StepPage
from taskloom.server import paging
from taskloom.server.access.auth import Who
from taskloom.server.access.scopes import READERS, SUBMITTERS
from taskloom.server.context import Context, Ctx, Id, Paged
from taskloom.server.errors import InvalidTransition, NoResult, NotFound
from taskloom.server.queue.attempts import curve, output
from taskloom.server.queue.attempts import steps as times
from taskloom.server.queue.runs import control, details
from taskloom.server.queue.transitions import changes as history
from taskloom.server.routing import Router

router = Router("/runs", tag="runs")


@router.get("/{run_id}", READERS, errors=(NotFound,))
def show(context: Ctx, run_id: Id) -> RunDetail:
    """Show a run with its settings and every attempt."""
    return details.show(context.database, context.settings, run_id)


@router.get("/{run_id}/samples", READERS, errors=(NotFound, NoResult))
def samples(context: Ctx, run_id: Id) -> SampleList:
    """List every step of the run, with warm-up steps marked."""
    return details.samples(context.database, run_id)


@router.get("/{run_id}/result", READERS, errors=(NotFound, NoResult), responses={200: {"model": TrainResult}})
def result(context: Ctx, run_id: Id) -> JSONResponse:
    """Return the raw result as it was uploaded. The header Attempt-No names its attempt."""
    found, attempt_no = details.result(context.database, run_id)
    return JSONResponse(found, headers={"Attempt-No": str(attempt_no)})


@router.get("/{run_id}/log", READERS, errors=(NotFound,))
def log(
    context: Ctx,
    run_id: Id,
    page: Paged,
    tail: Annotated[
        int | None, Query(ge=1, description="at most this many lines, the last ones; replaces `limit`")
    ] = None,
) -> LogPage:
    """List the output of the run's trainers, up to a limit for each attempt."""
    if tail is not None:
        paging.check_limit(tail, context.settings.max_page)
    return output.page(context.database, run_id, page.cursor, page.limit, tail)


@router.get("/{run_id}/progress", READERS, errors=(NotFound,))
def progress(context: Ctx, run_id: Id) -> ProgressCurve:
    """Show the live curve of a run: loss, tokens per second and step time at each heartbeat.

    The curve is empty once the run has a result, whose samples have every step.
    """
    return curve.of_run(context.database, run_id)


@router.get("/{run_id}/steps", READERS, errors=(NotFound,))
def steps(context: Ctx, run_id: Id, page: Paged) -> StepPage:
    """List times and losses of the steps of a running run, from its worker's heartbeats.

    The list contains the newest 20,000 steps of each attempt. It is empty once the run has a result, whose samples have
    every step.
    """
    return times.page(context.database, run_id, page.cursor, page.limit)


@router.get("/{run_id}/changes", READERS, errors=(NotFound,))
def changes(context: Ctx, run_id: Id, page: Paged) -> StateChangePage:
    """List the changes of state of the run and its attempts, with time, actor and reason, oldest first."""
    return history.of_run(context.database, run_id, page.cursor, page.limit)


@router.post("/{run_id}/cancel", SUBMITTERS, errors=(NotFound, InvalidTransition))
async def cancel(context: Ctx, caller: Who, run_id: Id) -> RunDetail:
    """Cancel a run: a queued one at once, a running one at its worker's next heartbeat."""
    return await context.control.run(_cancel, context, run_id, caller.actor)


def _cancel(context: Context, run_id: int, actor: str) -> RunDetail:
    detail = control.cancel(context.database, context.settings, run_id, actor)
    if context.ended():
        context.waiting.changed()
    return detail


@router.post("/{run_id}/retry", SUBMITTERS, errors=(NotFound, InvalidTransition))
async def retry(context: Ctx, caller: Who, run_id: Id) -> RunDetail:
    """Queue a failed, cancelled or quarantined run again. Its attempts stay in its history."""
    return await context.control.run(_retry, context, run_id, caller.actor)


def _retry(context: Context, run_id: int, actor: str) -> RunDetail:
    detail = control.retry(context.database, context.settings, run_id, actor)
    context.waiting.changed()
    return detail
