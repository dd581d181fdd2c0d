"""/api/v1/keys and /api/v1/whoami"""

from __future__ import annotations

from fastapi import Response

from taskloom.contract.keys import Identity, KeyCreated, KeyPage, KeyRequest, KeySummary
from taskloom.server.access.auth import Who
from taskloom.server.access.keys import keyring
from taskloom.server.access.scopes import ADMINS, READERS, WORKERS
from taskloom.server.context import Ctx, Id, Paged
from taskloom.server.errors import NotFound
from taskloom.server.queue.experiments import quotas
from taskloom.server.routing import Router

router = Router("/keys", tag="keys")
who = Router(tag="keys")


@router.post("", ADMINS, status_code=201)
def create(context: Ctx, request: KeyRequest, response: Response) -> KeyCreated:
    """Create a key. Only this answer contains its token. The first key must have the scope admin."""
    response.headers["Cache-Control"] = "no-store"
    return keyring.create(context.database, request)


@router.get("", ADMINS)
def index(context: Ctx, page: Paged) -> KeyPage:
    """List keys, oldest first, without tokens, including revoked and expired ones."""
    return keyring.page(context.database, page.cursor, page.limit)


@router.post("/{key_id}/revoke", ADMINS, errors=(NotFound,))
def revoke(context: Ctx, key_id: Id) -> KeySummary:
    """Revoke a key."""
    return keyring.revoke(context.database, key_id)


@who.get("/whoami", READERS | WORKERS)
def whoami(context: Ctx, caller: Who) -> Identity:
    """The caller's identity and scope, and the node hours that it has used, if they are limited."""
    found = keyring.describe(context.database, caller)
    return found.model_copy(update=quotas.of(context.database, context.settings, caller))
