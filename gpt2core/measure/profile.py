"""Profiles: cost and dependencies of a step's tasks as a file, enough to replay the step. A trace also contains when
each thread ran or waited.

Formats (gzip JSON, schemas taskloom-profile-1 and taskloom-trace-1): docs/reference/formats.md.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpt2core.spec.errors import UnreadableFile
from gpt2core.step.graph import Graph
from gpt2core.step.ops import Program, Work

SCHEMA = "taskloom-profile-1"
TRACE_SCHEMA = "taskloom-trace-1"
Ints = NDArray[np.int64]


def profile(
    config: Mapping[str, Any], environment: Mapping[str, Any], program: Program, graph: Graph, mean_s: Sequence[float],
    whole: Sequence[float] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """The profile. mean_s: seconds of each task, in the program's order, over the timed steps. whole: see `undivided`.
    """
    kinds = list(dict.fromkeys((op.name, op.phase) for op in program.ops))
    number = {kind: i for i, kind in enumerate(kinds)}
    tasks = program.tasks
    return {
        "schema": SCHEMA,
        "config": config,
        "environment": environment,
        "ops": kinds,
        "tasks": {
            "op": [number[op.name, op.phase] for op, _ in tasks],
            "layer": [op.layer for op, _ in tasks],
            "label": [tile.label for _, tile in tasks],
            "mean_s": list(mean_s),
            "flop": [tile.flop for _, tile in tasks],
            "bytes": [tile.bytes for _, tile in tasks],
            "filler": [op.filler for op, _ in tasks],
            **({} if whole is None else {"whole": list(whole)}),
        },
        "op_first": program.loop_first,
        "nodes": graph.task,
        "edges": list(graph.edges),
        "crossing": list(graph.crossing),
    }


def undivided(program: Program, alone: Program, ranks: int) -> list[float]:
    """The share of each task's cost that a rank has however many ranks there are: 0 where ranks divide all of it, 1
    where each does all. program: of one of these ranks; alone: of the same run with one rank.

    It follows from what a call of a layer costs in both, all tiles together: a + b / ranks. Calls that one rank
    does not have, such as sums of the ranks' parts, have 0.
    """
    mine, all_of_it = _costs(program), _costs(alone)
    shares = {
        call: min(max((ranks - all_of_it[call] / cost) / (ranks - 1), 0.0), 1.0)
        for call, cost in mine.items() if call in all_of_it and cost
    }  # fmt: skip
    found = []
    for op, tile in program.tasks:
        costs = [_cost(work) for work in tile.work]
        of_calls = [shares.get((call.name, call.phase, op.layer), 0.0) for call in op.calls]
        found.append(_mean(of_calls, costs))
    return found


def _costs(program: Program) -> Counter[tuple[str, str, int | None]]:
    """The cost of the calls of each kernel of a layer."""
    found = Counter[tuple[str, str, int | None]]()
    for op, _, call, work in program.calls:
        found[call.name, call.phase, op.layer] += _cost(work)
    return found


def _mean(values: Sequence[float], weights: Sequence[int]) -> float:
    total = sum(weights)
    return sum(value * weight for value, weight in zip(values, weights, strict=True)) / total if total else 0.0


def _cost(work: Work) -> int:
    """FLOP, or bytes of what computes nothing."""
    return work.flop or work.bytes


def calls(program: Program) -> dict[str, Any]:
    """Task of each call, and its index in `call_ops`."""
    kinds = list(dict.fromkeys((call.name, call.phase) for op in program.ops for call in op.calls))
    number = {kind: i for i, kind in enumerate(kinds)}
    tasks = enumerate(program.tasks)
    both = [(task, number[call.name, call.phase]) for task, (op, _) in tasks for call in op.calls]
    return {"call_ops": kinds, "calls": {"task": [task for task, _ in both], "op": [kind for _, kind in both]}}


def timeline(rows: Sequence[Ints], bounds: Ints, first_step: int, ns_per_tick: float, complete: bool) -> dict[str, Any]:
    """When each thread ran or waited. rows: for each thread (n, 5) what, step, begin and end in ticks, run delay in
    ns, where `what` is a call, or below 0 a wait; bounds: (timed steps + 1,) ticks at which steps begin and end.

    Times become nanoseconds since the first timed step began, and for each span the gap since the one before it. A run
    delay is at most its span; few spans have one.
    """

    def ns(ticks: Ints) -> Ints:
        since: Ints = np.rint((ticks - bounds[0]) * ns_per_tick).astype(np.int64)
        return since

    threads = []
    for unordered in rows:
        spans = unordered[np.argsort(unordered[:, 2], kind="stable")]
        begin, end = ns(spans[:, 2]), ns(spans[:, 3])
        delayed = np.flatnonzero(spans[:, 4])
        threads.append({
            "what": spans[:, 0].tolist(),
            "step": spans[:, 1].tolist(),
            "gap_ns": (begin - np.concatenate([[0], end[:-1]])).tolist(),
            "duration_ns": (end - begin).tolist(),
            "run_delay": {
                "span": delayed.tolist(), "ns": np.minimum(spans[:, 4], end - begin)[delayed].tolist(),
            },
        })  # fmt: skip
    return {
        "first_step": first_step,
        "step_end_ns": ns(bounds[1:]).tolist(),
        "threads": threads,
        "complete": complete,
    }


def write_json_gz(path: Path, content: Mapping[str, Any]) -> None:
    """Write gzip JSON, the same bytes for the same content. Raises UnreadableFile if the path cannot be written."""
    try:
        with path.open("wb") as file, gzip.GzipFile("", "wb", compresslevel=6, fileobj=file, mtime=0) as packed:
            packed.write(json.dumps(content, allow_nan=False, separators=(",", ":")).encode())
    except OSError as error:
        raise UnreadableFile(path, error.strerror or str(error)) from error
