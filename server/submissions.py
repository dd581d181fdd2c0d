"""POST /api/v1/experiments. A submission writes, a dry run only reads; so this route belongs to queue/ and to read/."""

from __future__ import annotations

import logging
from typing import Annotated

from fastapi import Header, Query
from fastapi.responses import JSONResponse, Response

from gpt2core.spec.wording import counted
from taskloom.analysis.naming import experiment_name
from taskloom.contract.experiments import ExperimentDetail, ExperimentRequest
from taskloom.contract.plans import DryRun
from taskloom.server.access.auth import Who
from taskloom.server.access.keys.keyring import Caller
from taskloom.server.access.scopes import SUBMITTERS
from taskloom.server.context import Context, Ctx
from taskloom.server.errors import (
    ExclusionTooLarge,
    ExpansionTooLarge,
    IdempotencyConflict,
    QueueFull,
    QuotaUsed,
    SpaceTooLarge,
)
from taskloom.server.queue.experiments import submission
from taskloom.server.read.analysis.answers import COMPUTED
from taskloom.server.read.context import Reading, Reads
from taskloom.server.read.plans import enough
from taskloom.server.read.tuning.search import opening
from taskloom.server.routing import Router

router = Router("/experiments", tag="experiments")
log = logging.getLogger("taskloom.server")
IdempotencyKey = Annotated[str | None, Header(min_length=1, max_length=200)]


@router.post(
    "",
    SUBMITTERS,
    errors=(*COMPUTED, ExpansionTooLarge, ExclusionTooLarge, SpaceTooLarge, IdempotencyConflict, QueueFull, QuotaUsed),
    status_code=201,
    response_model=ExperimentDetail,
    responses={200: {"model": DryRun, "description": "with dry_run=true: the planned runs"}},
)
async def submit(
    context: Ctx,
    reading: Reads,
    caller: Who,
    request: ExperimentRequest,
    idempotency_key: IdempotencyKey = None,
    dry_run: Annotated[bool, Query(description="return the planned runs without queueing them")] = False,
) -> Response:
    """Queue an experiment's runs. A repeated request with the same Idempotency-Key queues nothing and gets the first
    answer again."""
    if dry_run:
        return await _plan(reading, request)
    return await context.expanding.run(_submit, context, caller, request, idempotency_key)


async def _plan(reading: Reading, request: ExperimentRequest) -> Response:
    body = request.model_dump_json(exclude_unset=True)
    return Response(await reading.answers.pool.answer("plan", (body,), None), media_type="application/json")


def _submit(context: Context, caller: Caller, request: ExperimentRequest, idempotency_key: str | None) -> JSONResponse:
    detail, new = submission.submit(
        context.database, context.settings, request, caller.actor, idempotency_key, caller, enough, opening,
        experiment_name,
    )  # fmt: skip
    headers = {"Location": f"{context.settings.root_path}/api/v1/experiments/{detail.id}"}
    if new:
        log.info("experiment %s%s: %s", detail.id, f" ({detail.name})" * bool(detail.name), counted(detail.runs, "run"))
        context.waiting.changed()
    else:
        headers["Idempotent-Replayed"] = "true"
    return JSONResponse(detail.model_dump(mode="json"), 201, headers)
