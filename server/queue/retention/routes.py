"""/api/v1/prune"""

from __future__ import annotations

from taskloom.contract.retention import PruneReport, PruneRequest
from taskloom.server.access.guard import GuardedRouter
from taskloom.server.context import Ctx
from taskloom.server.errors import BodyTooLarge, InvalidRequest, MalformedBody
from taskloom.server.problems import responses
from taskloom.server.queue.retention import service

router = GuardedRouter(tags=["retention"])


@router.post("/prune", responses=responses(MalformedBody, BodyTooLarge, InvalidRequest))
def prune(context: Ctx, request: PruneRequest) -> PruneReport:
    """Delete old runs with their attempts, results, output and artifacts, and files that no artifact needs any more.

    Nothing goes of an experiment that has not ended. An experiment without runs goes too. `more`: ask again.
    """
    return service.prune(context.database, context.store, request)
