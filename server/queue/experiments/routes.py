"""/api/v1/experiments"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Query
from fastapi.responses import JSONResponse

from taskloom.contract.experiments import (
    DetectableDifference,
    DryRun,
    ExperimentDetail,
    ExperimentPage,
    ExperimentRequest,
)
from taskloom.server import paging
from taskloom.server.access.auth import Who
from taskloom.server.context import Ctx, Cursor, Id, PageSize
from taskloom.server.errors import (
    BadCursor,
    BodyTooLarge,
    ExpansionTooLarge,
    IdempotencyConflict,
    InvalidRequest,
    InvalidTransition,
    MalformedBody,
    NotFound,
    PageTooLarge,
    QueueFull,
)
from taskloom.server.problems import responses
from taskloom.server.queue.experiments import service
from taskloom.server.read.analysis.service import calibrations

router = APIRouter(prefix="/experiments", tags=["experiments"])
IdempotencyKey = Annotated[str | None, Header(min_length=1, max_length=200)]


@router.post(
    "",
    status_code=201,
    response_model=ExperimentDetail,
    responses={
        200: {"model": DryRun, "description": "with dry_run=true: what the submission would become"},
        **responses(MalformedBody, BodyTooLarge, InvalidRequest, ExpansionTooLarge, IdempotencyConflict, QueueFull),
    },
)
def submit(
    context: Ctx,
    caller: Who,
    request: ExperimentRequest,
    idempotency_key: IdempotencyKey = None,
    dry_run: Annotated[bool, Query(description="answer what it would become, and queue nothing")] = False,
) -> JSONResponse:
    """Queue an experiment's runs. With an Idempotency-Key, sending it again is safe: the first answer is given."""
    if dry_run:
        plan = service.dry_run(context.database, context.settings, request)
        seen = [
            DetectableDifference(
                node=found.node,
                experiment_id=found.experiment_id,
                pairs=request.repetitions,
                relative=found.at(request.repetitions),
            )
            for found in calibrations(context.database)
        ]
        return JSONResponse(plan.model_copy(update={"detectable": seen}).model_dump(mode="json"))
    detail, new = service.submit(context.database, context.settings, request, idempotency_key, caller.key_id)
    headers = {"Location": f"/api/v1/experiments/{detail.id}"}
    if new:
        context.waiting.changed()
    else:
        headers["Idempotent-Replayed"] = "true"
    return JSONResponse(detail.model_dump(mode="json"), 201, headers)


@router.get("", responses=responses(InvalidRequest, BadCursor, PageTooLarge))
def index(context: Ctx, cursor: Cursor = None, limit: PageSize = paging.DEFAULT_LIMIT) -> ExperimentPage:
    """Experiments, newest first."""
    paging.check_limit(limit, context.settings.max_page)
    return service.page(context.database, cursor, limit)


@router.get("/{experiment_id}", responses=responses(NotFound, InvalidRequest))
def show(context: Ctx, experiment_id: Id) -> ExperimentDetail:
    """An experiment with its request and how many of its runs are in each state."""
    return service.show(context.database, experiment_id)


@router.post("/{experiment_id}/cancel", responses=responses(NotFound, InvalidRequest, InvalidTransition))
def cancel(context: Ctx, experiment_id: Id) -> ExperimentDetail:
    """Cancel what has not ended: queued runs at once, others when their worker next beats."""
    return service.cancel(context.database, experiment_id)


@router.post("/{experiment_id}/retry", responses=responses(NotFound, InvalidRequest, InvalidTransition))
def retry(context: Ctx, experiment_id: Id) -> ExperimentDetail:
    """Queue again every run that failed, was cancelled or quarantined. Their attempts so far stay in their history."""
    detail = service.retry(context.database, experiment_id)
    context.waiting.changed()
    return detail
