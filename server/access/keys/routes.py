"""/api/v1/keys"""

from __future__ import annotations

from fastapi import Response

from taskloom.contract.keys import KeyCreated, KeyPage, KeyRequest, KeySummary
from taskloom.server import paging
from taskloom.server.access.guard import GuardedRouter
from taskloom.server.access.keys import service
from taskloom.server.context import Ctx, Cursor, Id, PageSize
from taskloom.server.errors import BadCursor, BodyTooLarge, InvalidRequest, MalformedBody, NotFound, PageTooLarge
from taskloom.server.problems import responses

router = GuardedRouter(prefix="/keys", tags=["keys"])


@router.post("", status_code=201, responses=responses(MalformedBody, BodyTooLarge, InvalidRequest))
def create(context: Ctx, request: KeyRequest, response: Response) -> KeyCreated:
    """A new key; its token is in this answer and nowhere else. The first key is an admin's."""
    response.headers["Cache-Control"] = "no-store"
    return service.create(context.database, request)


@router.get("", responses=responses(InvalidRequest, BadCursor, PageTooLarge))
def index(context: Ctx, cursor: Cursor = None, limit: PageSize = paging.DEFAULT_LIMIT) -> KeyPage:
    """Keys, oldest first, without their tokens; revoked and expired ones too."""
    paging.check_limit(limit, context.settings.max_page)
    return service.page(context.database, cursor, limit)


@router.post("/{key_id}/revoke", responses=responses(NotFound, InvalidRequest))
def revoke(context: Ctx, key_id: Id) -> KeySummary:
    """The key opens nothing any more."""
    return service.revoke(context.database, key_id)
