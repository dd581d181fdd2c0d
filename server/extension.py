"""Extends leases after the database's clock has jumped: no attempt is lost or late by that, and no dead worker keeps
its run for longer than a lease."""

from __future__ import annotations

import logging
from typing import Any

from sqlalchemy import case, select, update
from sqlalchemy.orm import Session

from taskloom.server.db import CLOCK, LOCKED, Database, hold, read_clock
from taskloom.server.queue.tables.attempts import Attempt, is_active
from taskloom.server.queue.tables.runs import Run
from taskloom.server.queue.tables.workers import Worker
from taskloom.server.settings import Settings
from taskloom.server.webhooks.models import Delivery

log = logging.getLogger("taskloom.server")


def settle(database: Database, settings: Settings) -> None:
    """Extend leases if the clock has jumped since this server last looked. Several servers may do so in turn."""
    with database.write() as session:
        reading = read_clock(session)
        jump_s = session.info[CLOCK].jump_s(reading)
        if not jump_s:
            return
        _extend(session, settings, reading.at, jump_s)
    database.clock.follow(reading)
    log.warning("the database's clock jumped by %+.1f s: leases are extended", jump_s)


def begin(database: Database, settings: Settings) -> None:
    """Bound what an earlier server stored by a clock that has been set back since."""
    with database.write() as session:
        reading = read_clock(session)
        _bound(session, settings, reading.at)
    database.clock.follow(reading)


def _extend(session: Session, settings: Settings, at: float, jump_s: float) -> None:
    forward_s = max(0.0, jump_s)
    hold(session, "clock")
    _lock(session)
    session.execute(
        update(Attempt).where(is_active())
        .values(expires_at=at + settings.lease_s, deadline_at=Attempt.deadline_at + forward_s),
        execution_options={"synchronize_session": False},
    )  # fmt: skip
    session.execute(update(Worker).values(seen_at=Worker.seen_at + forward_s))
    if jump_s < 0:
        session.execute(update(Delivery).where(Delivery.next_at.is_not(None)).values(next_at=Delivery.next_at + jump_s))
    _bound(session, settings, at)


def _lock(session: Session) -> None:
    """Lock workers before attempts, and both in the order of the reaper and of heartbeats."""
    session.execute(select(Worker.worker_id).order_by(Worker.worker_id).with_for_update(**LOCKED))
    session.execute(select(Attempt.id).where(is_active()).order_by(Attempt.run_id).with_for_update(**LOCKED))


def _bound(session: Session, settings: Settings, at: float) -> None:
    """No lease is longer than from now on, no deadline later than a whole timeout, no worker was seen in the future."""
    timeout_s = select(Run.timeout_s).where(Run.id == Attempt.run_id).scalar_subquery()
    session.execute(
        update(Attempt).where(is_active())
        .values(
            expires_at=_least(Attempt.expires_at, at + settings.lease_s),
            deadline_at=_least(Attempt.deadline_at, at + timeout_s),
        ),
        execution_options={"synchronize_session": False},
    )  # fmt: skip
    session.execute(update(Worker).where(Worker.seen_at > at).values(seen_at=at))


def _least(a: Any, b: Any) -> Any:
    return case((a < b, a), else_=b)
