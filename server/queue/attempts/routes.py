"""/api/v1/leases and /api/v1/attempts: operations of workers."""

from __future__ import annotations

import time

from fastapi import Response

from taskloom.contract.attempts import (
    AttemptSummary,
    HeartbeatAnswer,
    HeartbeatRequest,
    Lease,
    LeaseRequest,
    ResultReceipt,
    ResultUpload,
)
from taskloom.server.access.auth import Who
from taskloom.server.access.keys.keyring import Caller
from taskloom.server.access.scopes import READERS, WORKERS
from taskloom.server.context import Context, Ctx, Id
from taskloom.server.errors import (
    BadResult,
    InvalidTransition,
    LeaseLost,
    NotFound,
    NotYourWorker,
    ResultConflict,
    StaleBoot,
    UnknownWorker,
    WorkerBusy,
    WrongFencingToken,
)
from taskloom.server.queue import ownership
from taskloom.server.queue.attempts import lifecycle
from taskloom.server.queue.attempts.claim import claim
from taskloom.server.routing import Router
from taskloom.server.waiting import Empty

router = Router(tag="attempts")


@router.post(
    "/leases",
    WORKERS,
    errors=(UnknownWorker, StaleBoot, WorkerBusy, NotYourWorker),
    status_code=201,
    response_model=Lease,
    responses={204: {"description": "there was no run for this worker within wait_s; claim again"}},
    routine=True,
)
async def lease(context: Ctx, caller: Who, request: LeaseRequest) -> Lease | Response:
    """Claim the next run that fits the worker, waiting up to wait_s seconds for one.

    Until the first heartbeat of the attempt, a repeated claim returns the same lease, in case the answer was lost.
    """
    await context.control.run(ownership.check_worker, context.database, caller, request.worker_id)
    asked_at = time.monotonic()

    async def claim_now() -> Lease | Empty | None:
        left_s = None
        if request.remaining_s is not None:
            left_s = max(0.0, request.remaining_s - (time.monotonic() - asked_at))
        now_wanted = request.model_copy(update={"remaining_s": left_s})
        return await context.control.run(claim, context.database, context.settings, now_wanted)

    found = await context.waiting.wait_for(claim_now, min(request.wait_s, context.settings.max_wait_s))
    return Response(status_code=204) if found is None else found


@router.get("/attempts/{attempt_id}", READERS | WORKERS, errors=(NotFound, NotYourWorker))
def show(context: Ctx, caller: Who, attempt_id: Id) -> AttemptSummary:
    """Show an attempt. A worker's key sees only its own attempts."""
    ownership.check_attempt(context.database, caller, attempt_id)
    return lifecycle.show(context.database, attempt_id)


@router.post(
    "/attempts/{attempt_id}/heartbeat",
    WORKERS,
    errors=(NotFound, WrongFencingToken, LeaseLost, InvalidTransition, NotYourWorker),
    routine=True,
)
async def heartbeat(context: Ctx, caller: Who, attempt_id: Id, beat: HeartbeatRequest) -> HeartbeatAnswer:
    """Renew the lease and report progress. If the answer has `cancel`, the worker must stop the trainer. After the
    problem lease-lost, it must stop the trainer and discard the result.

    An expired lease is renewed, unless the run or its cores were claimed since or a new process has registered as the
    worker.
    """
    return await context.control.run(_heartbeat, context, caller, attempt_id, beat)


def _heartbeat(context: Context, caller: Caller, attempt_id: int, beat: HeartbeatRequest) -> HeartbeatAnswer:
    ownership.check_attempt(context.database, caller, attempt_id)
    return lifecycle.heartbeat(context.database, context.settings, attempt_id, beat)


@router.put(
    "/attempts/{attempt_id}/result",
    WORKERS,
    errors=(NotFound, BadResult, WrongFencingToken, ResultConflict, InvalidTransition, NotYourWorker),
    body_limit=lambda settings: settings.max_result_bytes,
)
async def finish(context: Ctx, caller: Who, attempt_id: Id, upload: ResultUpload) -> ResultReceipt:
    """End an attempt. Idempotent: the same SHA-256 gets the same answer.

    A late result counts if no newer attempt was claimed; otherwise it is stored as superseded. The outcome `cancelled`
    without a request to cancel returns the run to the queue.
    """
    return await context.control.run(_finish, context, caller, attempt_id, upload)


def _finish(context: Context, caller: Caller, attempt_id: int, upload: ResultUpload) -> ResultReceipt:
    ownership.check_attempt(context.database, caller, attempt_id)
    receipt, requeued = lifecycle.finish(context.database, attempt_id, upload)
    if context.ended() or requeued:
        context.waiting.changed()
    return receipt
