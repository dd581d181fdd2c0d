"""/api/v1/attempts/{id}/artifacts: upload of files by workers."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query, Request
from starlette.requests import ClientDisconnect

from taskloom.contract.artifacts import ACCEPTED_TYPES, NAME, OCTETS, ArtifactReceipt
from taskloom.contract.bodies import MOST_ID
from taskloom.server.access.auth import Who
from taskloom.server.access.scopes import WORKERS
from taskloom.server.artifact_store import Incoming
from taskloom.server.context import Context, Ctx, Id
from taskloom.server.errors import (
    ArtifactConflict,
    ArtifactDamaged,
    ArtifactTooLarge,
    NotFound,
    NotYourWorker,
    StoreUnavailable,
    TooManyArtifacts,
    UnknownMediaType,
    WrongFencingToken,
)
from taskloom.server.queue import ownership
from taskloom.server.queue.artifacts import recording
from taskloom.server.routing import Router

router = Router(tag="artifacts")
CHUNK_BYTES = 1 << 20
Name = Annotated[str, Path(pattern=f"^{NAME}$", description="a file name: no folders")]
BINARY = {"schema": {"type": "string", "format": "binary"}}


@router.put(
    "/attempts/{attempt_id}/artifacts/{name}",
    WORKERS,
    errors=(
        NotFound,
        UnknownMediaType,
        ArtifactTooLarge,
        ArtifactDamaged,
        ArtifactConflict,
        TooManyArtifacts,
        WrongFencingToken,
        NotYourWorker,
        StoreUnavailable,
    ),
    streams_body=True,
    openapi_extra={"requestBody": {"required": True, "content": {OCTETS: BINARY}}},
)
async def put(
    context: Ctx,
    caller: Who,
    request: Request,
    attempt_id: Id,
    name: Name,
    worker_id: Annotated[str, Query(min_length=1, max_length=200)],
    attempt_no: Annotated[int, Query(ge=1, le=MOST_ID)],
    sha256: Annotated[str, Query(pattern="^[0-9a-f]{64}$", description="of the body")],
) -> ArtifactReceipt:
    """Store a file of an attempt in any state. Idempotent; other content under the same name is a conflict.

    Accepted Content-Types: `application/json`, `application/x-ndjson`, `application/gzip`, `text/csv`,
    `text/plain` or `application/octet-stream`.
    """
    settings = context.settings
    source = recording.Source(attempt_id, worker_id, attempt_no, name)
    media_type = request.headers.get("Content-Type", OCTETS).partition(";")[0].strip().lower()
    if media_type not in ACCEPTED_TYPES:
        raise UnknownMediaType(f"Content-Type {media_type!r} is not supported", accepted=list(ACCEPTED_TYPES))
    await context.control.run(ownership.check_attempt, context.database, caller, attempt_id)
    await context.control.run(recording.check, context.database, source, settings.max_artifacts)
    with await context.control.run(context.store.incoming) as incoming:
        await _receive(context, request, incoming)
        if incoming.sha256 != sha256:
            raise ArtifactDamaged(f"the body's SHA-256 is {incoming.sha256}", sha256=incoming.sha256)
        return await context.control.run(_keep, context, source, incoming, media_type)


async def _receive(context: Context, request: Request, incoming: Incoming) -> None:
    """Write the body in pieces. Raises ArtifactTooLarge as early as possible."""
    limit_bytes = context.settings.max_artifact_bytes
    declared = request.headers.get("Content-Length", "")
    if declared.isdecimal() and int(declared) > limit_bytes:
        raise _too_large(limit_bytes)
    pending = bytearray()
    try:
        async for chunk in request.stream():
            pending += chunk
            if incoming.size_bytes + len(pending) > limit_bytes:
                raise _too_large(limit_bytes)
            if len(pending) >= CHUNK_BYTES:
                await context.control.run(incoming.write, bytes(pending))
                pending.clear()
    except ClientDisconnect:
        raise ArtifactDamaged("the connection ended before the body did") from None
    await context.control.run(incoming.write, bytes(pending))


def _too_large(limit_bytes: int) -> ArtifactTooLarge:
    refusal = ArtifactTooLarge(f"the file is larger than the limit of {limit_bytes} bytes", max_bytes=limit_bytes)
    refusal.headers["Connection"] = "close"  # the rest of the body is not read
    return refusal


def _keep(context: Context, source: recording.Source, incoming: Incoming, media_type: str) -> ArtifactReceipt:
    with context.store.keeping(incoming):
        return recording.record(
            context.database,
            source,
            incoming.sha256,
            media_type,
            incoming.size_bytes,
            context.settings.max_artifacts,
        )
