"""/api/v1/prune"""

from __future__ import annotations

from taskloom.contract.retention import PruneReport, PruneRequest
from taskloom.server.access.scopes import ADMINS
from taskloom.server.context import Ctx
from taskloom.server.queue.retention import pruning
from taskloom.server.routing import Router

router = Router(tag="retention")


@router.post("/prune", ADMINS)
def prune(context: Ctx, request: PruneRequest) -> PruneReport:
    """Delete old runs with their attempts, results, output and artifacts, and unused artifact files.

    Unfinished experiments are left untouched. Experiments without runs are deleted too. `more`: repeat the request.
    """
    return pruning.prune(context.database, context.store, request)
