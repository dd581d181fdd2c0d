"""Artifacts: put under an attempt by its worker, read under the run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path as FilePath
from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, Header, Path, Query, Request
from starlette.requests import ClientDisconnect
from starlette.responses import Response, StreamingResponse

from taskloom.contract.artifacts import ACCEPTED_TYPES, NAME, OCTETS, ArtifactList, ArtifactReceipt
from taskloom.contract.runs import MOST_ID
from taskloom.server.access.auth import Who
from taskloom.server.context import Context, Ctx, Id
from taskloom.server.errors import (
    ArtifactConflict,
    ArtifactDamaged,
    ArtifactTooLarge,
    InvalidRequest,
    NotFound,
    NotYourWorker,
    TooManyArtifacts,
    UnknownMediaType,
    WrongFencingToken,
)
from taskloom.server.problems import responses
from taskloom.server.queue.workers import ownership
from taskloom.server.read.artifacts import service
from taskloom.server.read.artifacts.store import Incoming

router = APIRouter(tags=["artifacts"])
CHUNK_BYTES = 1 << 20
Name = Annotated[str, Path(pattern=f"^{NAME}$", description="a file name: no folders")]
BINARY = {"schema": {"type": "string", "format": "binary"}}


@router.put(
    "/attempts/{attempt_id}/artifacts/{name}",
    responses=responses(
        NotFound,
        InvalidRequest,
        UnknownMediaType,
        ArtifactTooLarge,
        ArtifactDamaged,
        ArtifactConflict,
        TooManyArtifacts,
        WrongFencingToken,
        NotYourWorker,
    ),
    openapi_extra={"requestBody": {"required": True, "content": dict.fromkeys(ACCEPTED_TYPES, BINARY)}},
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
    """Keep a file of an attempt, whatever became of the attempt. Safe to send again; another content is a conflict."""
    settings = context.settings
    source = service.Source(attempt_id, worker_id, attempt_no, name)
    media_type = request.headers.get("Content-Type", OCTETS).partition(";")[0].strip().lower()
    if media_type not in ACCEPTED_TYPES:
        raise UnknownMediaType(f"{media_type!r} is not taken", accepted=list(ACCEPTED_TYPES))
    await to_thread.run_sync(ownership.check_attempt, context.database, caller, attempt_id)
    await to_thread.run_sync(service.check, context.database, source, settings.max_artifacts)
    with await to_thread.run_sync(context.store.incoming) as incoming:
        await _receive(request, incoming, settings.max_artifact_bytes)
        if incoming.sha256 != sha256:
            raise ArtifactDamaged(f"the body's SHA-256 is {incoming.sha256}", sha256=incoming.sha256)
        return await to_thread.run_sync(_keep, context, source, incoming, media_type)


async def _receive(request: Request, incoming: Incoming, limit_bytes: int) -> None:
    """Write the body as it comes. Raises ArtifactTooLarge as soon as that is known."""
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
                await to_thread.run_sync(incoming.write, bytes(pending))
                pending.clear()
    except ClientDisconnect:
        raise ArtifactDamaged("the connection ended before the body did") from None
    await to_thread.run_sync(incoming.write, bytes(pending))


def _too_large(limit_bytes: int) -> ArtifactTooLarge:
    refusal = ArtifactTooLarge(f"at most {limit_bytes} bytes are taken", max_bytes=limit_bytes)
    refusal.headers["Connection"] = "close"  # the rest of the body is not read
    return refusal


def _keep(context: Context, source: service.Source, incoming: Incoming, media_type: str) -> ArtifactReceipt:
    with context.store.keeping(incoming):
        return service.record(
            context.database,
            source,
            incoming.sha256,
            media_type,
            incoming.size_bytes,
            context.settings.max_artifacts,
        )


@router.get("/runs/{run_id}/artifacts", responses=responses(NotFound, InvalidRequest))
def index(context: Ctx, run_id: Id) -> ArtifactList:
    """The files that a run's attempts left: traces, profiles. `chosen` is what the address of their name gives."""
    return service.index(context.database, run_id)


@router.get(
    "/runs/{run_id}/artifacts/{name}",
    response_class=Response,
    responses={
        200: {"description": "the file", "content": dict.fromkeys(ACCEPTED_TYPES, BINARY)},
        304: {"description": "the file is the one named by If-None-Match"},
        **responses(NotFound, InvalidRequest),
    },
)
def show(
    context: Ctx,
    run_id: Id,
    name: Name,
    attempt_no: Annotated[int | None, Query(ge=1, le=MOST_ID, description="the file of this attempt")] = None,
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    """A file: of the attempt whose result counts, or else of the newest attempt that has it. ETag is its SHA-256."""
    found = service.find(context.database, run_id, name, attempt_no)
    headers = {"ETag": f'"{found.sha256}"', "Attempt-No": str(found.attempt_no)}
    if found.sha256 in (if_none_match or ""):
        return Response(status_code=304, headers=headers)
    path = context.store.path(found.sha256)
    if not path.is_file():
        raise NotFound(f"the file of artifact {name} of run {run_id} is not in this server's store")
    headers |= {"Content-Length": str(found.size_bytes), "Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(_chunks(path), media_type=found.media_type, headers=headers)


def _chunks(path: FilePath) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk
