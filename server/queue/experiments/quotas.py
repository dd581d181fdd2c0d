"""Limits of a key, a user or a group: runs in the queue, and node hours within the last days."""

from __future__ import annotations

from sqlalchemy import ColumnElement, case, func, or_, select
from sqlalchemy.orm import Session

from taskloom.server.access.keys.keyring import Caller
from taskloom.server.db import Database, now
from taskloom.server.errors import QueueFull, QuotaUsed
from taskloom.server.queue.tables.attempts import Attempt
from taskloom.server.queue.tables.experiments import Experiment, ExperimentKey
from taskloom.server.queue.tables.runs import Run, is_queued
from taskloom.server.settings import Settings

HOUR_S, DAY_S = 3600.0, 86400.0


def check(session: Session, settings: Settings, caller: Caller, more: int) -> None:
    """Check that a caller, or its group, may queue more runs. The queue's limit is for all callers if this one has
    neither key nor name; node hours are not limited then. Raises QueueFull or QuotaUsed."""
    whose = caller.actor if caller.group is None else f"group {caller.group}"
    theirs = _theirs(caller)
    of = "" if theirs is None else f" of {whose}"
    query = select(func.count()).select_from(Run).where(is_queued())
    queued = session.execute(query if theirs is None else query.where(theirs)).scalar_one()
    if queued + more > settings.max_queued:
        raise QueueFull(
            f"{queued} runs{of} are queued and {more} would be added; the limit is {settings.max_queued}",
            group=caller.group,
            queued=queued,
            runs=more,
            max_queued=settings.max_queued,
        )
    used_h, most_h = node_hours(session, settings, caller), settings.max_node_hours
    if used_h is not None and most_h is not None and used_h >= most_h:
        raise QuotaUsed(
            f"{whose} has used {used_h:.4g} of {most_h:g} node hours of the last {settings.quota_days:g} days; "
            "new runs are accepted once earlier ones are older",
            group=caller.group,
            node_hours=used_h,
            max_node_hours=most_h,
        )


def node_hours(session: Session, settings: Settings, caller: Caller) -> float | None:
    """Workers' time of all attempts of a caller, or of its group, within the last days; None without a limit, and for a
    caller that has neither key nor name."""
    theirs = _theirs(caller)
    if theirs is None or settings.max_node_hours is None:
        return None
    at = now(session)
    begin = at - settings.quota_days * DAY_S
    counted_from = case((Attempt.claimed_at < begin, begin), else_=Attempt.claimed_at)
    spent = func.sum(func.coalesce(Attempt.finished_at, at) - counted_from)
    recent = or_(Attempt.finished_at.is_(None), Attempt.finished_at > begin)
    query = select(spent).select_from(Attempt).join(Run, Run.id == Attempt.run_id).where(theirs, recent)
    return float(session.execute(query).scalar_one() or 0.0) / HOUR_S


def of(database: Database, settings: Settings, caller: Caller) -> dict[str, float | None]:
    """Node hours of a caller with their limit, as fields of its identity."""
    with database.read() as session:
        used_h = node_hours(session, settings, caller)
    return {"node_hours": used_h, "max_node_hours": None if used_h is None else settings.max_node_hours}


def _theirs(caller: Caller) -> ColumnElement[bool] | None:
    """SQL: the run is of an experiment of a caller or its group; None for a caller that has neither key nor name."""
    if caller.group is not None:
        return Run.experiment_id.in_(select(Experiment.id).where(Experiment.group == caller.group))
    if caller.key_id is not None:
        return Run.experiment_id.in_(
            select(ExperimentKey.experiment_id).where(ExperimentKey.key_id == caller.key_id)
        )
    if caller.user is not None:
        return Run.experiment_id.in_(select(Experiment.id).where(Experiment.owner == caller.actor))
    return None
