"""An experiment of two schedulers on one and two threads, and its report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import TypeAdapter

from taskloom.analysis.growth import growth
from taskloom.analysis.memory import MemoryRow, memory
from taskloom.analysis.processes import Process
from taskloom.analysis.profile import profile_of
from taskloom.analysis.report import Report, ReportExperiment, build
from taskloom.analysis.trace import Trace
from taskloom.analysis.variants import Sides, by_variant, variant_of

PEAKS = {"peaks": {"threads": {"1": {"gflop_per_s": 200.0, "triad_gb_per_s": 10.0},
                               "2": {"gflop_per_s": 400.0, "triad_gb_per_s": 12.0}}}}  # fmt: skip
PROFILE = {
    "schema": "taskloom-profile-1", "config": {"sync": "step"}, "environment": {}, "ops": [["fc", "forward"]],
    "tasks": {"op": [0] * 4, "layer": [None] * 4, "label": [""] * 4, "mean_s": [1.0, 3.0, 3.0, 1.0],
              "flop": [10**12] * 4, "bytes": [10**6] * 4},
    "op_first": [0, 2, 4], "nodes": [-1, 0, 1, 2, 3, -1],
    "edges": [[0, 1], [0, 2], [1, 3], [2, 4], [3, 5], [4, 5]], "crossing": [[5, 0]],
}  # fmt: skip
STEP_S = {("fork-join", 1): 8.0, ("fork-join", 2): 6.0, ("task", 1): 8.0, ("task", 2): 4.0}
OPS = [{"op": "fc", "phase": "forward", "calls": 8, "time_s": 12.0, "flop": 10**12, "bytes": 10**9},
       {"op": "adamw", "phase": "backward", "calls": 8, "time_s": 4.0, "flop": 10**9, "bytes": 10**10}]  # fmt: skip
GROWN = growth(
    {"batch": 4, "seq": 64}, {"batch": (1, 64), "seq": (1, 128)}, "last",
    lambda mode, shape: {"weights": 1000, "activations": (1 + (mode == "train")) * shape["batch"] * shape["seq"]},
)  # fmt: skip


def make_processes(make_result: Callable[..., dict[str, Any]]) -> list[Process]:
    made: list[Process] = []
    for block in range(7):
        for (scheduler, threads), step_s in STEP_S.items():
            s = step_s * (1 + 0.001 * ((7 * block + len(made)) % 5))
            result = make_result([9, s, s], scheduler=scheduler, threads=threads, environment=PEAKS)
            rest = {"barrier_s": 2 * s - 15.9 / threads, "starvation_s": 0.0, "scheduling_s": 0.0, "idle_s": 0.0}
            result["threads"] = [{"thread": i, "useful_s": 15.9 / threads, **rest} for i in range(threads)]
            result["graph"] = {"t1_s": 8.0, "tinf_s": 4.0, "fork_join_tinf_s": 6.0}
            result["ops"] = OPS
            result["validity"] = {"foreign": {"cores": [0], "foreign_s": 0.0, "busy_s": 1.0, "own_s": 1.0}}
            result["memory_bytes"] = {"weights": 1000, "peak_rss": 2000}
            result["resident_bytes"] = {"interpreter": 900, "arenas": 1000}
            variant = {"scheduler": scheduler, "threads": threads}
            made.append(Process(len(made) + 1, result, variant, (1, block)))
    return made


def make_report(
    processes: Sequence[Process],
    traces: Mapping[int, Trace] | None = None,
    stopping: dict[str, Any] | None = None,
    primary: Sides | None = None,
    **request: Any,
) -> Report:
    asked = ReportExperiment(
        7, "tasks or <fork-join>?", "finished", len(processes), {"succeeded": len(processes)},
        "2026-11-21T12:00:00+00:00", {"repetitions": 7, **request}, stopping,
    )  # fmt: skip
    rows = [
        MemoryRow(variant_of(group), memory([p.result["memory_bytes"] for p in group],
                                            [p.result["resident_bytes"] for p in group],
                                            [p.result.get("compiled", 0) for p in group], 4, 64, 128,
                                            lambda b, t: {"weights": 250 * b * t // 64}))
        for group in by_variant(processes)
    ]  # fmt: skip
    profiles = {p.run_id: profile_of(PROFILE) for p in processes if p.config["threads"] == 1}
    made = build(asked, processes, profiles, rows, primary=primary, traces=traces, growth=GROWN)
    return as_read(made)


def as_read(report: Report) -> Report:
    """The report as a client reads it."""
    adapter = TypeAdapter(Report)
    return adapter.validate_json(adapter.dump_json(report, warnings="error"))


def changed(of: Any, **values: Any) -> Any:
    """A copy with other values, each by its path: sweep__rows__0__verdict="slower"."""
    for path, value in values.items():
        name, _, rest = path.partition("__")
        old = of[int(name)] if isinstance(of, list) else getattr(of, name)
        new = changed(old, **{rest: value}) if rest else value
        of = [new if each is old else each for each in of] if isinstance(of, list) else replace(of, **{name: new})
    return of
