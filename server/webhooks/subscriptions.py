"""Webhooks: create, list, delete. Their messages are queued in the transaction of the event."""

from __future__ import annotations

import secrets

from pydantic import BaseModel
from sqlalchemy import delete, func, select, update
from sqlalchemy.orm import Session

from taskloom.contract.webhooks import (
    DeliveryPage,
    DeliverySummary,
    EventName,
    WebhookCreated,
    WebhookPage,
    WebhookRequest,
    WebhookSummary,
)
from taskloom.server import paging
from taskloom.server.access.keys.keyring import Caller, is_usable
from taskloom.server.db import Database, now, utc
from taskloom.server.errors import InvalidRequest, NotFound, TooManyWebhooks
from taskloom.server.settings import Settings
from taskloom.server.webhooks.models import Delivery, Webhook
from taskloom.server.webhooks.targets import is_allowed

SECRET_BYTES = 32
KEPT_S = 30 * 86400.0  # age of a delivered or given-up message at which it may be deleted
MOST_WAITING = 1000  # per webhook; beyond that the oldest messages are dropped


def create(database: Database, settings: Settings, caller: Caller, request: WebhookRequest) -> WebhookCreated:
    """Create a webhook. Raises InvalidRequest for a URL that the operator does not allow, or TooManyWebhooks."""
    if not is_allowed(request.url, settings.webhook_targets):
        allowed = settings.webhook_targets or "none"
        accepted = f"a URL below one that this server's operator allows (TASKLOOM_WEBHOOK_TARGETS): {allowed}"
        raise InvalidRequest([{"pointer": "/url", "field": "url", "value": request.url, "accepted": accepted}])
    with database.write() as session:
        count = session.execute(select(func.count()).select_from(Webhook)).scalar_one()
        if count >= settings.max_webhooks:
            raise TooManyWebhooks(f"this server has {count} webhooks; the limit is {settings.max_webhooks}")
        made = Webhook(
            url=request.url,
            events=sorted(set(request.events)),
            secret=secrets.token_hex(SECRET_BYTES),
            key_id=caller.key_id,
            created_at=now(session),
        )
        session.add(made)
        session.flush()
        return WebhookCreated(**_summary(made).model_dump(), secret=made.secret)


def page(database: Database, caller: Caller, cursor: str | None, limit: int) -> WebhookPage:
    """The caller's webhooks, or all for an admin, oldest first. Raises BadCursor."""
    query = select(Webhook).order_by(Webhook.id).limit(limit + 1)
    if caller.scope != "admin":
        query = query.where(Webhook.key_id == caller.key_id)
    after = paging.decode_id(cursor)
    if after is not None:
        query = query.where(Webhook.id > after)
    with database.read() as session:
        rows, more = paging.split(session.scalars(query).all(), limit)
    return WebhookPage(items=[_summary(row) for row in rows], next_cursor=paging.encode(rows[-1].id) if more else None)


def remove(database: Database, caller: Caller, webhook_id: int) -> None:
    """Delete a webhook with all its deliveries. Raises NotFound."""
    with database.write() as session:
        session.delete(_get(session, caller, webhook_id))


def deliveries(
    database: Database, caller: Caller, webhook_id: int, cursor: str | None, limit: int
) -> DeliveryPage:
    """Deliveries of a webhook, newest first. Raises NotFound or BadCursor."""
    before = paging.decode_id(cursor)
    query = select(Delivery).where(Delivery.webhook_id == webhook_id).order_by(Delivery.id.desc()).limit(limit + 1)
    if before is not None:
        query = query.where(Delivery.id < before)
    with database.read() as session:
        _get(session, caller, webhook_id)
        rows, more = paging.split(session.scalars(query).all(), limit)
    next_cursor = paging.encode(rows[-1].id) if more else None
    return DeliveryPage(items=[_delivery(row) for row in rows], next_cursor=next_cursor)


def enqueue(session: Session, event: EventName, body: BaseModel) -> None:
    """Queue a message for every webhook that subscribes to the event and whose key is valid."""
    at, text = now(session), body.model_dump_json()
    for webhook in session.scalars(select(Webhook).order_by(Webhook.id)):
        if event in webhook.events and may_receive(session, webhook):
            _make_room(session, webhook.id, at)
            session.add(Delivery(webhook_id=webhook.id, event=event, body=text, created_at=at, next_at=at, tries=0))


def may_receive(session: Session, webhook: Webhook) -> bool:
    """Whether the key that created the webhook is still valid, or there was none."""
    return webhook.key_id is None or is_usable(session, webhook.key_id)


def _make_room(session: Session, webhook_id: int, at: float) -> None:
    of_it = Delivery.webhook_id == webhook_id
    session.execute(delete(Delivery).where(of_it, Delivery.next_at.is_(None), Delivery.created_at < at - KEPT_S))
    waiting = select(Delivery.id).where(of_it, Delivery.next_at.is_not(None)).order_by(Delivery.id.desc())
    too_many = session.scalars(waiting.offset(MOST_WAITING - 1)).all()
    if too_many:
        given_up = {"next_at": None, "error": f"more than {MOST_WAITING} were waiting"}
        session.execute(update(Delivery).where(Delivery.id.in_(too_many)).values(**given_up))


def _get(session: Session, caller: Caller, webhook_id: int) -> Webhook:
    found = session.get(Webhook, webhook_id)
    if found is None or (caller.scope != "admin" and found.key_id != caller.key_id):
        raise NotFound(f"you have no webhook {webhook_id}")
    return found


def _summary(row: Webhook) -> WebhookSummary:
    owner = "local" if row.key_id is None else f"key:{row.key_id}"
    return WebhookSummary(id=row.id, url=row.url, events=row.events, owner=owner, created_at=utc(row.created_at))


def _delivery(row: Delivery) -> DeliverySummary:
    delivered = row.delivered_at is not None
    return DeliverySummary(
        id=row.id,
        event=row.event,
        state="delivered" if delivered else "given-up" if row.next_at is None else "waiting",
        tries=row.tries,
        created_at=utc(row.created_at),
        next_at=None if row.next_at is None else utc(row.next_at),
        delivered_at=None if row.delivered_at is None else utc(row.delivered_at),
        status=row.status,
        error=row.error,
    )
