"""/api/v1/experiments: changes of experiments. Submissions are in server/submissions.py, lists in read/experiments."""

from __future__ import annotations

from taskloom.contract.experiments import ExperimentChange, ExperimentDetail
from taskloom.contract.extensions import ExperimentExtension
from taskloom.contract.runs import StateChangePage
from taskloom.server.access.auth import Who
from taskloom.server.access.keys.keyring import Caller
from taskloom.server.access.scopes import READERS, SUBMITTERS
from taskloom.server.context import Context, Ctx, Id, Paged
from taskloom.server.errors import ExpansionTooLarge, InvalidTransition, NotFound, QueueFull, QuotaUsed
from taskloom.server.queue.experiments import control
from taskloom.server.queue.experiments import extend as extending
from taskloom.server.queue.transitions import changes as history
from taskloom.server.routing import Router

router = Router("/experiments", tag="experiments")


@router.get("/{experiment_id}/changes", READERS, errors=(NotFound,))
def changes(context: Ctx, experiment_id: Id, page: Paged) -> StateChangePage:
    """List the changes of state of the experiment's runs and attempts, oldest first."""
    return history.of_experiment(context.database, experiment_id, page.cursor, page.limit)


@router.patch("/{experiment_id}", SUBMITTERS, errors=(NotFound,))
async def change(context: Ctx, experiment_id: Id, request: ExperimentChange) -> ExperimentDetail:
    """Change the name, tags or notes of an experiment. Its runs do not change."""
    return await context.control.run(control.change, context.database, experiment_id, request)


@router.post("/{experiment_id}/cancel", SUBMITTERS, errors=(NotFound, InvalidTransition))
async def cancel(context: Ctx, caller: Who, experiment_id: Id) -> ExperimentDetail:
    """Cancel unfinished runs: queued ones at once, others at their worker's next heartbeat."""
    return await context.control.run(control.cancel, context.database, experiment_id, caller.actor)


@router.post("/{experiment_id}/retry", SUBMITTERS, errors=(NotFound, InvalidTransition))
async def retry(context: Ctx, caller: Who, experiment_id: Id) -> ExperimentDetail:
    """Queue every failed, cancelled or quarantined run again. Their attempts stay in their histories.

    A stopping rule or a tuning that was cancelled between two blocks continues.
    """
    return await context.control.run(_retry, context, experiment_id, caller.actor)


def _retry(context: Context, experiment_id: int, actor: str) -> ExperimentDetail:
    detail = control.retry(context.database, experiment_id, actor)
    context.waiting.changed()
    return detail


@router.post(
    "/{experiment_id}/extend", SUBMITTERS, errors=(NotFound, InvalidTransition, ExpansionTooLarge, QueueFull, QuotaUsed)
)
async def extend(
    context: Ctx, caller: Who, experiment_id: Id, request: ExperimentExtension
) -> ExperimentDetail:
    """Queue further repetitions of a finished experiment, on the node of its last block.

    From then on its intervals are those that hold at any time.
    """
    return await context.expanding.run(_extend, context, caller, experiment_id, request.repetitions)


def _extend(context: Context, caller: Caller, experiment_id: int, repetitions: int) -> ExperimentDetail:
    detail = extending.extend(context.database, context.settings, experiment_id, repetitions, caller)
    context.waiting.changed()
    return detail
