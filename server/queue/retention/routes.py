"""/api/v1/prune"""

from __future__ import annotations

from taskloom.contract.retention import PruneReport, PruneRequest
from taskloom.server.access.scopes import ADMINS
from taskloom.server.context import Ctx
from taskloom.server.queue.retention import service
from taskloom.server.routing import Router

router = Router(tag="retention")


@router.post("/prune", ADMINS)
def prune(context: Ctx, request: PruneRequest) -> PruneReport:
    """Delete old runs with their attempts, results, output and artifacts, and files that no artifact needs any more.

    Nothing goes of an experiment that has not ended. An experiment without runs goes too. `more`: ask again.
    """
    return service.prune(context.database, context.store, request)
