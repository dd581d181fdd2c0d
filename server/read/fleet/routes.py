"""GET /api/v1/queue/runs and GET /api/v1/workers/{worker_id}/attempts"""

from __future__ import annotations

from taskloom.contract.demand import QueuedRunPage
from taskloom.contract.workers import WorkerAttemptPage
from taskloom.server.access.scopes import READERS
from taskloom.server.context import Ctx, Paged
from taskloom.server.errors import NotFound
from taskloom.server.queue.workers.routes import WorkerId
from taskloom.server.read.fleet import listing
from taskloom.server.routing import Router

of_queue = Router("/queue", tag="queue")
of_workers = Router("/workers", tag="workers")


@of_queue.get("/runs", READERS)
def runs(context: Ctx, page: Paged) -> QueuedRunPage:
    """List queued runs in the order of claims, each with what it waits for."""
    return listing.queue(context.database, context.settings, page.cursor, page.limit)


@of_workers.get("/{worker_id}/attempts", READERS, errors=(NotFound,))
def attempts(context: Ctx, worker_id: WorkerId, page: Paged) -> WorkerAttemptPage:
    """List the attempts of a worker, newest first, including lost ones."""
    return listing.attempts(context.database, worker_id, page.cursor, page.limit)
