"""Cost of a run by the operator's price of a node hour."""

from __future__ import annotations

import orjson
from sqlalchemy import select
from sqlalchemy.orm import Session

from gpt2core.spec.goals import NOT_REACHED
from taskloom.contract.runs import Cost
from taskloom.server.queue.attempts import node_time
from taskloom.server.queue.tables.attempts import Digest, Result
from taskloom.server.queue.tables.runs import Run
from taskloom.server.settings import PREFIX, Settings

HOUR_S = 3600.0
NO_PRICE = f"the operator has set no price: {PREFIX}PRICE_PER_NODE_HOUR"


def of_run(session: Session, settings: Settings, run: Run) -> Cost:
    """The costs of a run, or the reasons why they are unknown."""
    price, aims = settings.price_per_node_hour, bool(run.spec.get("stop_at"))
    if price is None:
        return Cost(cost_missing=NO_PRICE, cost_to_goal_missing=NO_PRICE if aims else None)
    whole_s = node_time.total_s(run)
    to_goal_s, why = _to_goal_s(session, run) if aims else (None, None)
    return Cost(
        cost=of_time(price, whole_s),
        cost_missing=node_time.of_run(run).node_time_missing,
        cost_to_goal=of_time(price, to_goal_s),
        cost_to_goal_missing=why,
    )


def of_time(price: float | None, spent_s: float | None) -> float | None:
    """Cost of seconds of a node; None without a price or a time."""
    return None if price is None or spent_s is None else spent_s / HOUR_S * price


def _to_goal_s(session: Session, run: Run) -> tuple[float | None, str | None]:
    """Seconds of the steps to the goal of a run that has one, or the reason why they are unknown."""
    query = select(Digest.measured).join(Result, Digest.attempt_id == Result.attempt_id)
    measured = session.scalar(query.where(Result.run_id == run.id, Result.canonical)) if run.timed else None
    goal = None if measured is None else orjson.loads(measured).get("goal")
    if not goal:
        return None, node_time.NO_RESULT
    return goal["time_s"], None if goal["reached"] else NOT_REACHED
