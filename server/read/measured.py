"""Parts of runs' results that lists show, from the digests of their results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from sqlalchemy import select
from sqlalchemy.orm import Session

from taskloom.server.queue.tables.attempts import Digest, Result


def quantiles(session: Session, run_ids: Sequence[int]) -> dict[int, Mapping[str, Any]]:
    """Latency of each of these runs of inference that has a result."""
    return _measured(session, run_ids, "latency")


def goals(session: Session, run_ids: Sequence[int]) -> dict[int, Mapping[str, Any]]:
    """What the way to its goal took, of each of these runs that has a result."""
    return _measured(session, run_ids, "goal")


def _measured(session: Session, run_ids: Sequence[int], name: str) -> dict[int, Mapping[str, Any]]:
    if not run_ids:
        return {}
    query = select(Result.run_id, Digest.measured).join(Digest, Digest.attempt_id == Result.attempt_id)
    rows = session.execute(query.where(Result.run_id.in_(run_ids), Result.canonical)).all()
    return {run_id: orjson.loads(measured).get(name, {}) for run_id, measured in rows}
