"""/api/v1/workers"""

from __future__ import annotations

import logging
from typing import Annotated, Any

from fastapi import Path, Response

from taskloom.contract.workers import Leaving, WorkerPage, WorkerRegistration, WorkerSummary
from taskloom.server.access.auth import Who
from taskloom.server.access.keys.keyring import Caller
from taskloom.server.access.scopes import ADMINS, READERS, WORKERS
from taskloom.server.context import Context, Ctx, Paged
from taskloom.server.errors import (
    CoresTaken,
    InvalidRequest,
    NotFound,
    NotYourWorker,
    StaleBoot,
    WorkerBusy,
    WorkerElsewhere,
)
from taskloom.server.queue.workers import registry
from taskloom.server.routing import Router

log = logging.getLogger("taskloom.server")
router = Router("/workers", tag="workers")
WorkerId = Annotated[str, Path(max_length=200)]
NEW: dict[int | str, Any] = {201: {"model": WorkerSummary, "description": "a new worker"}}


def _register(context: Context, caller: Caller, registration: WorkerRegistration, response: Response) -> WorkerSummary:
    summary, new, requeued = registry.register(context.database, context.settings, caller, registration)
    if new or requeued is not None:
        log.info("worker %s registered, cores %s of %s", summary.worker_id, summary.cores, summary.node)
    if requeued is not None and (context.ended() or requeued):
        context.waiting.changed()
    if new:
        response.status_code = 201
        response.headers["Location"] = f"{context.settings.root_path}/api/v1/workers/{summary.worker_id}"
    return summary


@router.post(
    "",
    WORKERS,
    errors=(NotYourWorker, StaleBoot, WorkerElsewhere, CoresTaken),
    responses=NEW,
)
async def register(context: Ctx, caller: Who, registration: WorkerRegistration, response: Response) -> WorkerSummary:
    """Register a worker. Idempotent. Another boot_id means a new process: attempts of the old one are lost, and its
    boot_id is rejected from then on."""
    return await context.control.run(_register, context, caller, registration, response)


@router.put(
    "/{worker_id}",
    WORKERS,
    errors=(NotYourWorker, StaleBoot, WorkerElsewhere, CoresTaken),
    responses=NEW,
)
async def put(
    context: Ctx,
    caller: Who,
    worker_id: WorkerId,
    registration: WorkerRegistration,
    response: Response,
) -> WorkerSummary:
    """Register a worker at its own URL. Idempotent."""
    if registration.worker_id != worker_id:
        raise InvalidRequest(
            [
                {
                    "pointer": "/worker_id",
                    "field": "worker_id",
                    "value": registration.worker_id,
                    "accepted": f"the one in the URL ({worker_id})",
                }
            ]
        )
    return await context.control.run(_register, context, caller, registration, response)


@router.post("/{worker_id}/leave", WORKERS, errors=(NotFound, NotYourWorker, StaleBoot), status_code=204)
def leave(context: Ctx, caller: Who, worker_id: WorkerId, leaving: Leaving) -> None:
    """Record that a worker takes no further run. Other workers may claim its blocks at once."""
    registry.leave(context.database, caller, worker_id, leaving.boot_id)
    log.info("worker %s left", worker_id)
    context.waiting.changed()


@router.get("", READERS)
def index(context: Ctx, page: Paged) -> WorkerPage:
    """List workers by id."""
    return registry.page(context.database, context.settings, page.cursor, page.limit)


@router.get("/{worker_id}", READERS, errors=(NotFound,))
def show(context: Ctx, worker_id: WorkerId) -> WorkerSummary:
    """Show a worker with the time of its last message and its current attempt."""
    return registry.show(context.database, context.settings, worker_id)


@router.delete("/{worker_id}", ADMINS, errors=(NotFound, WorkerBusy), status_code=204)
async def remove(context: Ctx, worker_id: WorkerId) -> None:
    """Remove a silent or departed worker from lists. Its history stays, and it returns when it registers again."""
    await context.control.run(registry.remove, context.database, context.settings, worker_id)
