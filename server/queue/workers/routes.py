"""/api/v1/workers"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path, Response

from taskloom.contract.workers import Leaving, WorkerPage, WorkerRegistration, WorkerSummary
from taskloom.server.access.auth import Who
from taskloom.server.access.keys.service import Caller
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
from taskloom.server.queue.workers import service
from taskloom.server.routing import Router

router = Router("/workers", tag="workers")
WorkerId = Annotated[str, Path(max_length=200)]
NEW: dict[int | str, Any] = {201: {"model": WorkerSummary, "description": "a worker not known before"}}


def _register(context: Context, caller: Caller, registration: WorkerRegistration, response: Response) -> WorkerSummary:
    summary, new, requeued = service.register(context.database, context.settings, caller, registration)
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
    """A worker introduces itself; again at will. Another boot_id says that it is a new process: what the old one held
    is lost, and its boot_id is taken no more."""
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
    """Register a worker at its own address. Idempotent."""
    if registration.worker_id != worker_id:
        raise InvalidRequest(
            [
                {
                    "pointer": "/worker_id",
                    "field": "worker_id",
                    "value": registration.worker_id,
                    "accepted": f"the one in the address ({worker_id})",
                }
            ]
        )
    return await context.control.run(_register, context, caller, registration, response)


@router.post("/{worker_id}/leave", WORKERS, errors=(NotFound, NotYourWorker, StaleBoot, CoresTaken), status_code=204)
def leave(context: Ctx, caller: Who, worker_id: WorkerId, leaving: Leaving) -> None:
    """A worker says that it takes no further run. Blocks that were bound to it are free for others at once."""
    service.leave(context.database, caller, worker_id, leaving.boot_id)
    context.waiting.changed()


@router.get("", READERS)
def index(context: Ctx, page: Paged) -> WorkerPage:
    """Workers by their id."""
    return service.page(context.database, context.settings, page.cursor, page.limit)


@router.get("/{worker_id}", READERS, errors=(NotFound,))
def show(context: Ctx, worker_id: WorkerId) -> WorkerSummary:
    """A worker, when it was last heard of, and what it runs."""
    return service.show(context.database, context.settings, worker_id)


@router.delete("/{worker_id}", ADMINS, errors=(NotFound, WorkerBusy), status_code=204)
async def remove(context: Ctx, worker_id: WorkerId) -> None:
    """List a worker no more that has left or is silent. What it did stays; it is back when it registers again."""
    await context.control.run(service.remove, context.database, context.settings, worker_id)
