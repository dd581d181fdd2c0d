"""/api/v1/analysis/history/series/{series_id}/threshold"""

from __future__ import annotations

from taskloom.contract.thresholds import SeriesThreshold, ThresholdRequest
from taskloom.server.access.auth import Who
from taskloom.server.access.scopes import SUBMITTERS
from taskloom.server.alerts import thresholds
from taskloom.server.context import Ctx, Id
from taskloom.server.errors import AnalysisTooLong, NotFound, TooManyQuestions
from taskloom.server.routing import Router

router = Router("/analysis/history/series/{series_id}/threshold", tag="thresholds")


@router.put("", SUBMITTERS, errors=(NotFound, AnalysisTooLong, TooManyQuestions))
async def put(context: Ctx, caller: Who, series_id: Id, request: ThresholdRequest) -> SeriesThreshold:
    """Set the threshold of a series, or replace it. The newest ended experiment of the series is judged by it at once,
    and later ones when they end.
    """
    made = await context.control.run(thresholds.put, context.database, series_id, request, caller.actor)
    await context.judge(series_id)
    return made


@router.delete("", SUBMITTERS, errors=(NotFound,), status_code=204)
async def remove(context: Ctx, caller: Who, series_id: Id) -> None:
    """Delete the threshold of a series. Its open alert is dismissed."""
    await context.control.run(thresholds.remove, context.database, series_id, caller.actor)
