"""Confirmed settings, kept for each problem and machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import ConfigError
from gpt2core.spec.roles import with_role
from gpt2core.spec.series import MACHINE
from taskloom.contract.tuned import TunedSetting, TunedSettingPage
from taskloom.server import paging
from taskloom.server.db import Database, utc
from taskloom.server.errors import InvalidRequest
from taskloom.server.queue.experiments.canonical import sha256
from taskloom.server.queue.tables.runs import Series
from taskloom.server.read.tuning.models import Tuned

FINGERPRINT = tuple(name for name in MACHINE if name != "clock")  # known without starting a trainer


def problem_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of the network and its shape."""
    return {name: config.get(name) for name in with_role("size")}


def machine_of(environment: Mapping[str, Any]) -> dict[str, Any]:
    """The fingerprint of a node."""
    return {name: environment.get(name) for name in FINGERPRINT}


def keep(session: Session, experiment_id: int, at: float, fields: Mapping[str, Any]) -> None:
    """Keep a confirmed setting instead of an older one of the same problem and machine. fields: the fields of a
    TunedSetting."""
    key = sha256([fields["problem"], fields["machine"]])
    session.execute(delete(Tuned).where(Tuned.key == key))
    session.add(
        Tuned(key=key, problem_sha256=sha256(fields["problem"]), experiment_id=experiment_id, confirmed_at=at,
              fields=dict(fields))
    )  # fmt: skip


def page(database: Database, base: Mapping[str, Any] | None, cursor: str | None, limit: int) -> TunedSettingPage:
    """Kept settings, newest first; base: only those of its problem. Raises InvalidRequest or BadCursor."""
    query = select(Tuned).order_by(Tuned.id.desc()).limit(limit + 1)
    if base is not None:
        try:
            problem = problem_of(TrainConfig.from_dict(base).to_dict())
        except ConfigError as error:
            raise InvalidRequest(
                [{"pointer": "#query/base", "field": error.field, "value": error.value, "accepted": error.accepted}]
            ) from None
        query = query.where(Tuned.problem_sha256 == sha256(problem))
    before = paging.decode_id(cursor)
    if before is not None:
        query = query.where(Tuned.id < before)
    with database.read() as session:
        rows, more = paging.split(session.scalars(query).all(), limit)
        now = {node: _machine_now(session, node) for node in {str(row.fields["node"]) for row in rows}}
    items = [
        TunedSetting(
            experiment_id=row.experiment_id, confirmed_at=utc(row.confirmed_at),
            changed=_changed(row.fields["machine"], now[str(row.fields["node"])]), **row.fields,
        )
        for row in rows
    ]  # fmt: skip
    return TunedSettingPage(items=items, next_cursor=paging.encode(rows[-1].id) if more else None)


def _machine_now(session: Session, node: str) -> Mapping[str, Any] | None:
    """The machine of a node's newest result; None without results."""
    newest = select(Series.machine).where(Series.node == node).order_by(Series.last_at.desc(), Series.id.desc())
    return session.scalars(newest.limit(1)).first()


def _changed(machine: Mapping[str, Any], now: Mapping[str, Any] | None) -> list[str]:
    """Names of what differs in the fingerprint."""
    return [] if now is None else [name for name in FINGERPRINT if machine.get(name) != now.get(name)]
