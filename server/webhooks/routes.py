"""/api/v1/webhooks"""

from __future__ import annotations

from fastapi import Response

from taskloom.contract.webhooks import DeliveryPage, WebhookCreated, WebhookPage, WebhookRequest
from taskloom.server.access.auth import Who
from taskloom.server.access.scopes import SUBMITTERS
from taskloom.server.context import Ctx, Id, Paged
from taskloom.server.errors import NotFound, TooManyWebhooks
from taskloom.server.routing import Router
from taskloom.server.webhooks import subscriptions

router = Router("/webhooks", tag="webhooks")


@router.post("", SUBMITTERS, errors=(TooManyWebhooks,), status_code=201)
async def create(context: Ctx, caller: Who, request: WebhookRequest, response: Response) -> WebhookCreated:
    """Send verdicts and alerts to a URL. Only this answer contains the secret that signs the messages."""
    response.headers["Cache-Control"] = "no-store"
    return await context.control.run(subscriptions.create, context.database, context.settings, caller, request)


@router.get("", SUBMITTERS)
def index(context: Ctx, caller: Who, page: Paged) -> WebhookPage:
    """List the caller's webhooks, oldest first; an admin sees all."""
    return subscriptions.page(context.database, caller, page.cursor, page.limit)


@router.delete("/{webhook_id}", SUBMITTERS, errors=(NotFound,), status_code=204)
async def remove(context: Ctx, caller: Who, webhook_id: Id) -> None:
    """Delete a webhook and its deliveries."""
    await context.control.run(subscriptions.remove, context.database, caller, webhook_id)


@router.get("/{webhook_id}/deliveries", SUBMITTERS, errors=(NotFound,))
def deliveries(context: Ctx, caller: Who, webhook_id: Id, page: Paged) -> DeliveryPage:
    """List the deliveries of a webhook, newest first: delivered, waiting or given-up."""
    return subscriptions.deliveries(context.database, caller, webhook_id, page.cursor, page.limit)
