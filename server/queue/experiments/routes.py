"""/api/v1/experiments, but for submissions: those are in server/submissions.py."""

from __future__ import annotations

from taskloom.contract.experiments import ExperimentDetail, ExperimentPage
from taskloom.contract.runs import StateChangePage
from taskloom.server import paging
from taskloom.server.access.auth import Who
from taskloom.server.access.guard import GuardedRouter
from taskloom.server.context import Context, Ctx, Cursor, Id, PageSize
from taskloom.server.errors import BadCursor, InvalidRequest, InvalidTransition, NotFound, PageTooLarge
from taskloom.server.problems import responses
from taskloom.server.queue.experiments import service
from taskloom.server.queue.runs import changes

router = GuardedRouter(prefix="/experiments", tags=["experiments"])


@router.get("", responses=responses(InvalidRequest, BadCursor, PageTooLarge))
def index(context: Ctx, cursor: Cursor = None, limit: PageSize = paging.DEFAULT_LIMIT) -> ExperimentPage:
    """Experiments, newest first."""
    paging.check_limit(limit, context.settings.max_page)
    return service.page(context.database, cursor, limit)


@router.get("/{experiment_id}", responses=responses(NotFound, InvalidRequest))
def show(context: Ctx, experiment_id: Id) -> ExperimentDetail:
    """An experiment with its request and how many of its runs are in each state."""
    return service.show(context.database, experiment_id)


@router.get("/{experiment_id}/changes", responses=responses(NotFound, BadCursor, PageTooLarge, InvalidRequest))
def history(
    context: Ctx, experiment_id: Id, cursor: Cursor = None, limit: PageSize = paging.DEFAULT_LIMIT
) -> StateChangePage:
    """The experiment's history: every change of state of its runs and their attempts, oldest first."""
    paging.check_limit(limit, context.settings.max_page)
    return changes.of_experiment(context.database, experiment_id, cursor, limit)


@router.post("/{experiment_id}/cancel", responses=responses(NotFound, InvalidRequest, InvalidTransition))
async def cancel(context: Ctx, caller: Who, experiment_id: Id) -> ExperimentDetail:
    """Cancel what has not ended: queued runs at once, others when their worker next beats."""
    return await context.control.run(service.cancel, context.database, experiment_id, caller.actor)


@router.post("/{experiment_id}/retry", responses=responses(NotFound, InvalidRequest, InvalidTransition))
async def retry(context: Ctx, caller: Who, experiment_id: Id) -> ExperimentDetail:
    """Queue again every run that failed, was cancelled or quarantined. Their attempts so far stay in their history."""
    return await context.control.run(_retry, context, experiment_id, caller.actor)


def _retry(context: Context, experiment_id: int, actor: str) -> ExperimentDetail:
    detail = service.retry(context.database, experiment_id, actor)
    context.waiting.changed()
    return detail
