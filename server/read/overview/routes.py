"""/api/v1/overview"""

from __future__ import annotations

from taskloom.contract.overview import Overview
from taskloom.server.access.scopes import READERS
from taskloom.server.read.context import Reads
from taskloom.server.routing import Router

router = Router(tag="overview")


@router.get("/overview", READERS)
def overview(reading: Reads) -> Overview:
    """Show the queue, the workers, recently ended runs and slowdowns."""
    return reading.overviews.get()
