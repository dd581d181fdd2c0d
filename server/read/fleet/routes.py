"""The queue in claim order and what workers did: GET /api/v1/queue/runs, GET /api/v1/workers/{worker_id}/attempts"""

from __future__ import annotations

from taskloom.contract.demand import QueuedRunPage
from taskloom.contract.workers import WorkerAttemptPage
from taskloom.server.access.scopes import READERS
from taskloom.server.context import Ctx, Paged
from taskloom.server.errors import NotFound
from taskloom.server.queue.workers.routes import WorkerId
from taskloom.server.read.fleet import service
from taskloom.server.routing import Router

of_queue = Router("/queue", tag="queue")
of_workers = Router("/workers", tag="workers")


@of_queue.get("/runs", READERS)
def runs(context: Ctx, page: Paged) -> QueuedRunPage:
    """Queued runs in the order in which they are claimed, each with what it waits for."""
    return service.queue(context.database, context.settings, page.cursor, page.limit)


@of_workers.get("/{worker_id}/attempts", READERS, errors=(NotFound,))
def attempts(context: Ctx, worker_id: WorkerId, page: Paged) -> WorkerAttemptPage:
    """Attempts of a worker, newest first. Those that were lost are among them."""
    return service.attempts(context.database, worker_id, page.cursor, page.limit)
