"""Parts of runs' results that lists show, from the digests of their results."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from sqlalchemy import select
from sqlalchemy.orm import Session

from gpt2core.spec.config import NAME_SET, TrainConfig
from taskloom.analysis.processes import canary_s
from taskloom.server.queue.tables.attempts import Digest, Result
from taskloom.server.queue.tables.runs import Run

FIRST = "time_to_first_token_s"
OPS = "ops"


def quantiles(session: Session, run_ids: Sequence[int]) -> dict[int, Mapping[str, Any]]:
    """Latency of each of these runs of inference that has a result; of generation with the time to the first token."""
    found = _measured(session, run_ids)
    return {run_id: {**each.get("latency", {}), FIRST: each.get(FIRST)} for run_id, each in found.items()}


def goals(session: Session, run_ids: Sequence[int]) -> dict[int, Mapping[str, Any]]:
    """What the way to its goal took, of each of these runs that has a result."""
    return {run_id: each.get("goal", {}) for run_id, each in _measured(session, run_ids).items()}


def machine(session: Session, run_ids: Sequence[int], op: str | None = None) -> dict[int, dict[str, Any]]:
    """Time of the canary, peak memory and number of compiled kernels of each of these runs that has a result, the names
    of its operations, and the time of one of them in a timed step, over all threads."""
    if not run_ids:
        return {}
    query = select(Result.run_id, Digest.measured, Digest.causes, Run.spec).join(
        Digest, Digest.attempt_id == Result.attempt_id
    )
    query = query.join(Run, Run.id == Result.run_id).where(Result.run_id.in_(run_ids), Result.canonical)
    out: dict[int, dict[str, Any]] = {}
    for run_id, measured, causes, spec in session.execute(query):
        found, about = orjson.loads(measured), orjson.loads(causes)
        peak = (about.get("memory_bytes") or {}).get("peak_rss")
        entry = {"canary_s": canary_s(found), "memory_bytes": peak, "compiled": about.get("compiled")}
        rows = about.get(OPS) or []
        entry[OPS] = list(dict.fromkeys(row["op"] for row in rows))
        spent_s = [row["time_s"] for row in rows if row["op"] == op]
        if spent_s:
            steps = len(found["step_s"]) - warmup(spec)
            entry["op_s"] = math.fsum(spent_s) / steps if steps > 0 else None
        out[run_id] = entry
    return out


def warmup(spec: Mapping[str, Any]) -> int:
    """Number of warm-up steps of a run."""
    return TrainConfig.from_dict({name: value for name, value in spec.items() if name in NAME_SET}).warmup_steps


def _measured(session: Session, run_ids: Sequence[int]) -> dict[int, Mapping[str, Any]]:
    if not run_ids:
        return {}
    query = select(Result.run_id, Digest.measured).join(Digest, Digest.attempt_id == Result.attempt_id)
    rows = session.execute(query.where(Result.run_id.in_(run_ids), Result.canonical)).all()
    return {run_id: orjson.loads(measured) for run_id, measured in rows}
