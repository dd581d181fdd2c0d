"""Delivery of messages to webhooks in the background, at least once, with retries for a bounded time.

Before a server sends a message, it claims the row by postponing its next try, so that no other server sends it at the
same time. If the server stops before the answer, a server sends the message again at that time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from dataclasses import dataclass

import httpx
from anyio import to_thread
from sqlalchemy import select

from taskloom.contract.webhooks import DELIVERY, SIGNATURE, signature
from taskloom.server.db import LOCKED, Database, db_now, now
from taskloom.server.settings import Settings
from taskloom.server.webhooks.models import Delivery, Webhook
from taskloom.server.webhooks.subscriptions import may_receive
from taskloom.server.webhooks.targets import is_allowed

AT_ONCE = 8
AT_ONCE_EACH = 2  # per webhook, so that a slow receiver does not delay others
MOST_DELAY_S = 3600.0
log = logging.getLogger("taskloom.server")


@dataclass(frozen=True)
class Message:
    """A claimed delivery."""

    delivery_id: int
    url: str
    secret: str
    event: str
    body: bytes
    tries: int


@dataclass(frozen=True)
class Answer:
    """The receiver's status, or the reason why there is none."""

    status: int | None
    error: str | None


class Deliveries:
    """Sends due messages with each call of `look`."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database, self._settings = database, settings
        self._sending: asyncio.Future[None] | None = None
        self._closed = False

    def close(self) -> None:
        """Abort running deliveries; a server sends them again later."""
        self._closed = True
        if self._sending is not None:
            self._sending.cancel()

    async def look(self) -> None:
        """Send due messages."""
        claimed = await to_thread.run_sync(self._claim)
        if claimed and not self._closed:
            self._sending = asyncio.ensure_future(self._send(claimed))
            with contextlib.suppress(asyncio.CancelledError):  # cancelled by close()
                await self._sending

    async def _send(self, claimed: list[Message]) -> None:
        async with httpx.AsyncClient(follow_redirects=False, trust_env=False) as client:
            await asyncio.gather(*(self._deliver(client, message) for message in claimed))

    async def _deliver(self, client: httpx.AsyncClient, message: Message) -> None:
        answer = await self._post(client, message)
        if answer.error is not None:
            log.warning("delivery %s, try %s: %s", message.delivery_id, message.tries, answer.error)
        await to_thread.run_sync(self._note, message, answer)

    async def _post(self, client: httpx.AsyncClient, message: Message) -> Answer:
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "taskloom",
            "Taskloom-Event": message.event,
            DELIVERY: str(message.delivery_id),
            SIGNATURE: signature(message.secret, int(time.time()), message.body),
        }
        limit_s = self._settings.webhook_timeout_s
        try:
            async with (
                asyncio.timeout(limit_s),
                client.stream("POST", message.url, content=message.body, headers=headers, timeout=limit_s) as answer,
            ):  # the body of the answer is not read
                status = answer.status_code
        except TimeoutError:
            return Answer(None, f"no answer within {limit_s:g} s")
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return Answer(None, str(error) or type(error).__name__)
        return Answer(status, None if 200 <= status < 300 else f"status {status}")

    def _claim(self) -> list[Message]:
        due = (Delivery.next_at.is_not(None), Delivery.next_at <= db_now())
        with self._database.read() as session:
            if session.scalars(select(Delivery.id).where(*due).limit(1)).first() is None:
                return []
        claimed: list[Message] = []
        of_each: Counter[int] = Counter()
        with self._database.write() as session:
            at = now(session)
            waiting = select(Delivery).where(*due).order_by(Delivery.next_at, Delivery.id).limit(20 * AT_ONCE)
            for row in session.scalars(waiting.with_for_update(skip_locked=True)):
                if len(claimed) == AT_ONCE or of_each[row.webhook_id] == AT_ONCE_EACH:
                    continue
                webhook = session.get_one(Webhook, row.webhook_id)
                if not is_allowed(webhook.url, self._settings.webhook_targets):
                    row.next_at, row.error = None, "this server's operator no longer allows the URL"
                    continue
                if not may_receive(session, webhook):
                    row.next_at, row.error = None, "the key of the webhook is revoked or has expired"
                    continue
                of_each[row.webhook_id] += 1
                row.tries += 1
                row.next_at = at + self._settings.webhook_timeout_s + self._delay_s(row.tries)
                claimed.append(
                    Message(row.id, webhook.url, webhook.secret, row.event, row.body.encode(), row.tries)
                )
        return claimed

    def _note(self, message: Message, answer: Answer) -> None:
        with self._database.write() as session:
            row = session.get(Delivery, message.delivery_id, with_for_update=LOCKED)
            if row is None or (row.next_at is None and answer.error is not None):
                return  # meanwhile the webhook was deleted, or the last try failed
            row.status, row.error = answer.status, answer.error
            if answer.error is None:
                row.delivered_at, row.next_at = now(session), None
            elif row.tries >= self._settings.webhook_tries:
                row.next_at = None
            else:
                row.next_at = now(session) + self._delay_s(row.tries)

    def _delay_s(self, tries: int) -> float:
        """Seconds until the next try, doubled after each try up to MOST_DELAY_S."""
        return min(self._settings.webhook_retry_s * 2.0 ** (tries - 1), MOST_DELAY_S)
