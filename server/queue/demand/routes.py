"""/api/v1/queue"""

from __future__ import annotations

from typing import Annotated

from fastapi import Path

from taskloom.contract.demand import Demand, PoolPage, PoolReport, PoolSummary
from taskloom.server.access.auth import Who
from taskloom.server.access.scopes import READERS, WORKERS
from taskloom.server.context import Ctx
from taskloom.server.errors import NotYourPool, TooManyPools
from taskloom.server.queue.demand import provisioning
from taskloom.server.routing import Router

router = Router("/queue", tag="queue")


@router.get("/demand", READERS | WORKERS)
def demand(context: Ctx) -> Demand:
    """Show the requirements of queued runs, grouped, and the present workers."""
    return provisioning.demand(context.database, context.settings)


@router.get("/pools", READERS | WORKERS)
def pools(context: Ctx) -> PoolPage:
    """List the pools that provisioners have reported."""
    return provisioning.pools(context.database)


@router.put("/pools/{name}", WORKERS, errors=(NotYourPool, TooManyPools))
def report(
    context: Ctx,
    caller: Who,
    name: Annotated[str, Path(max_length=40, pattern=r"^[A-Za-z0-9_-]+$")],
    pool: PoolReport,
) -> PoolSummary:
    """Report the state of a provisioner's pool. Queued runs then show that they wait for a job of this pool."""
    return provisioning.report(context.database, caller, name, pool)
