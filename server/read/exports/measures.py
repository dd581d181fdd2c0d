"""Columns of runs that come from their results' digests, which are read only where such a column is exported."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from statistics import fmean
from typing import Any

from taskloom.analysis.causes import efficiencies, rooflines
from taskloom.analysis.memory import PEAK
from taskloom.analysis.processes import Process
from taskloom.server.db import Database
from taskloom.server.read.analysis import reading

RUNS_AT_ONCE = 500
MEASURES: dict[str, Any] = {
    "parallel_efficiency": "number", "mfu": "number", "foreign_share": "number", "peak_rss_bytes": "integer",
    "compiled": "integer", "energy_j": "number", "in_flight_s": "number", "exposed_s": "number",
}  # fmt: skip
NONE = dict.fromkeys(MEASURES)


def with_measures(database: Database, rows: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Rows of runs with the columns MEASURES, which are null without a result."""
    source = iter(rows)
    while batch := list(itertools.islice(source, RUNS_AT_ONCE)):
        with database.read(snapshot=True) as session:
            found = {each.run_id: each for each in reading.of_runs(session, [row["run_id"] for row in batch], True)}
        for row in batch:
            process = found.get(row["run_id"])
            yield {**row, **(NONE if process is None else _of(process))}


def _of(process: Process) -> dict[str, Any]:
    """Efficiency, share of the peak of products, foreign load, peak memory with the kernels that it compiled, energy,
    and the mean over its ranks of the time in flight and exposed."""
    (used,), (roof,) = efficiencies([process]), rooflines([process])
    ranks = process.communication
    return {
        "parallel_efficiency": None if used.efficiency is None else used.efficiency.parallel,
        "mfu": roof.mfu,
        "foreign_share": process.foreign_share,
        "peak_rss_bytes": (process.result.get("memory_bytes") or {}).get(PEAK) or None,
        "compiled": process.result.get("compiled"),
        "energy_j": process.result.get("energy_j"),
        **{name: fmean(rank[name] for rank in ranks) if ranks else None for name in ("in_flight_s", "exposed_s")},
    }
