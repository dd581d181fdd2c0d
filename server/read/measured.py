"""Parts of runs' results that lists show, from the digests of their results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from sqlalchemy import select
from sqlalchemy.orm import Session

from taskloom.server.queue.tables.attempts import Digest, Result

FIRST = "time_to_first_token_s"


def quantiles(session: Session, run_ids: Sequence[int]) -> dict[int, Mapping[str, Any]]:
    """Latency of each of these runs of inference that has a result; of generation with the time to the first token."""
    found = _measured(session, run_ids)
    return {run_id: {**each.get("latency", {}), FIRST: each.get(FIRST)} for run_id, each in found.items()}


def goals(session: Session, run_ids: Sequence[int]) -> dict[int, Mapping[str, Any]]:
    """What the way to its goal took, of each of these runs that has a result."""
    return {run_id: each.get("goal", {}) for run_id, each in _measured(session, run_ids).items()}


def _measured(session: Session, run_ids: Sequence[int]) -> dict[int, Mapping[str, Any]]:
    if not run_ids:
        return {}
    query = select(Result.run_id, Digest.measured).join(Digest, Digest.attempt_id == Result.attempt_id)
    rows = session.execute(query.where(Result.run_id.in_(run_ids), Result.canonical)).all()
    return {run_id: orjson.loads(measured) for run_id, measured in rows}
