"""/api/v1/runs/{id}/artifacts: lists and downloads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path as FilePath
from typing import Annotated

from fastapi import Header, Query
from starlette.responses import Response, StreamingResponse

from taskloom.contract.artifacts import ACCEPTED_TYPES, ArtifactList
from taskloom.contract.bodies import MOST_ID
from taskloom.server.access.scopes import READERS
from taskloom.server.context import Ctx, Id
from taskloom.server.errors import NotFound
from taskloom.server.queue.artifacts.routes import BINARY, CHUNK_BYTES, Name
from taskloom.server.read.artifacts import lookup
from taskloom.server.routing import Router

router = Router(tag="artifacts")


@router.get("/runs/{run_id}/artifacts", READERS, errors=(NotFound,))
def index(context: Ctx, run_id: Id) -> ArtifactList:
    """List the files of a run's attempts: traces, profiles. `chosen` marks the file that a download by name returns."""
    return lookup.index(context.database, run_id)


@router.get(
    "/runs/{run_id}/artifacts/{name}",
    READERS,
    errors=(NotFound,),
    response_class=Response,
    responses={200: {"description": "the file", "content": dict.fromkeys(ACCEPTED_TYPES, BINARY)}},
)
def show(
    context: Ctx,
    run_id: Id,
    name: Name,
    attempt_no: Annotated[int | None, Query(ge=1, le=MOST_ID, description="the file of this attempt")] = None,
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    """Download a file of the canonical attempt, or else of the newest attempt that has it. ETag is its SHA-256."""
    found = lookup.find(context.database, run_id, name, attempt_no)
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
