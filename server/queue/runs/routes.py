"""/api/v1/runs"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Response

from taskloom.contract.runs import MOST_ID, LogPage, RunDetail, RunPage, RunState, SampleList, StateChangePage
from taskloom.server import paging
from taskloom.server.access.auth import Who
from taskloom.server.access.guard import GuardedRouter
from taskloom.server.context import Context, Ctx, Cursor, Id, PageSize
from taskloom.server.errors import BadCursor, InvalidRequest, InvalidTransition, NoResult, NotFound, PageTooLarge
from taskloom.server.problems import responses
from taskloom.server.queue.attempts import output
from taskloom.server.queue.runs import changes, service

router = GuardedRouter(prefix="/runs", tags=["runs"])


@router.get("", responses=responses(InvalidRequest, BadCursor, PageTooLarge))
def index(
    context: Ctx,
    experiment_id: Annotated[int | None, Query(ge=1, le=MOST_ID)] = None,
    state: Annotated[list[RunState] | None, Query(description="may be given several times")] = None,
    cursor: Cursor = None,
    limit: PageSize = paging.DEFAULT_LIMIT,
) -> RunPage:
    """Runs in the order in which they were planned."""
    paging.check_limit(limit, context.settings.max_page)
    return service.page(context.database, experiment_id, state or [], cursor, limit)


@router.get("/{run_id}", responses=responses(NotFound, InvalidRequest))
def show(context: Ctx, run_id: Id) -> RunDetail:
    """A run with its settings and every attempt."""
    return service.show(context.database, context.settings, run_id)


@router.get("/{run_id}/samples", responses=responses(NotFound, NoResult, InvalidRequest))
def samples(context: Ctx, run_id: Id) -> SampleList:
    """Every step of the run, warm-up included and marked."""
    return service.samples(context.database, run_id)


@router.get("/{run_id}/result", responses=responses(NotFound, NoResult, InvalidRequest))
def result(context: Ctx, run_id: Id, response: Response) -> dict[str, Any]:
    """The trainer's result, raw, as it was uploaded. The header Attempt-No says by which attempt."""
    found, attempt_no = service.result(context.database, run_id)
    response.headers["Attempt-No"] = str(attempt_no)
    return found


@router.get("/{run_id}/log", responses=responses(NotFound, BadCursor, PageTooLarge, InvalidRequest))
def log(context: Ctx, run_id: Id, cursor: Cursor = None, limit: PageSize = paging.DEFAULT_LIMIT) -> LogPage:
    """What the trainers of the run's attempts printed, the first lines of each."""
    paging.check_limit(limit, context.settings.max_page)
    return output.page(context.database, run_id, cursor, limit)


@router.get("/{run_id}/changes", responses=responses(NotFound, BadCursor, PageTooLarge, InvalidRequest))
def history(context: Ctx, run_id: Id, cursor: Cursor = None, limit: PageSize = paging.DEFAULT_LIMIT) -> StateChangePage:
    """The run's history: every change of its state and its attempts', with time, actor and reason, oldest first."""
    paging.check_limit(limit, context.settings.max_page)
    return changes.of_run(context.database, run_id, cursor, limit)


@router.post("/{run_id}/cancel", responses=responses(NotFound, InvalidRequest, InvalidTransition))
async def cancel(context: Ctx, caller: Who, run_id: Id) -> RunDetail:
    """Cancel a run: a queued one at once, one under way when its worker next beats."""
    return await context.control.run(_cancel, context, run_id, caller.actor)


def _cancel(context: Context, run_id: int, actor: str) -> RunDetail:
    detail = service.cancel(context.database, context.settings, run_id, actor)
    if context.ended():
        context.waiting.changed()
    return detail


@router.post("/{run_id}/retry", responses=responses(NotFound, InvalidRequest, InvalidTransition))
async def retry(context: Ctx, caller: Who, run_id: Id) -> RunDetail:
    """Queue a run again that failed, was cancelled or quarantined. Its attempts so far stay in its history."""
    return await context.control.run(_retry, context, run_id, caller.actor)


def _retry(context: Context, run_id: int, actor: str) -> RunDetail:
    detail = service.retry(context.database, context.settings, run_id, actor)
    context.waiting.changed()
    return detail
