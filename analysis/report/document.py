"""Content of a report as JSON; page and plots are rendered from it alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpt2core.spec.roles import declared, with_role
from gpt2core.spec.wording import enumerated
from taskloom.analysis.causes import efficiencies, rooflines
from taskloom.analysis.communication import communication
from taskloom.analysis.comparison import NOISE_FLOOR
from taskloom.analysis.fingerprint import FINGERPRINT, environment_differences
from taskloom.analysis.growth import Growth
from taskloom.analysis.memory import MemoryRow
from taskloom.analysis.outlook import outlook
from taskloom.analysis.processes import Process, distinct
from taskloom.analysis.profile import Profile
from taskloom.analysis.report import timeline
from taskloom.analysis.report import workload as of_workload
from taskloom.analysis.report.card import report_card
from taskloom.analysis.report.conclusion import answer
from taskloom.analysis.scaling import scaling
from taskloom.analysis.statistics import outliers, outliers_of_each
from taskloom.analysis.sweep import axes_of, sweep
from taskloom.analysis.trace import Trace
from taskloom.analysis.validity import disturbed, marks, summary
from taskloom.analysis.variants import Sides, by_variant, variant_of
from taskloom.analysis.wording import settings
from taskloom.analysis.workload import Workload

SCHEMA = "taskloom.report/1"
TRAINING = tuple(name for name in declared("group", "training") if name not in with_role("length"))


@dataclass(frozen=True)
class Asked:
    """The experiment as it was submitted, and its progress."""

    experiment_id: int
    name: str
    state: str
    runs: int
    by_state: Mapping[str, int]
    created_at: str
    request: Mapping[str, Any]
    stopping: Mapping[str, Any] | None = None
    node_time: Mapping[str, float] | None = None
    node_time_missing: str | None = None
    extended: int = 0  # repetitions that were added after its end


def build(
    experiment: Asked,
    processes: Sequence[Process],
    profiles: Mapping[int, Profile],
    memory: Sequence[MemoryRow],
    calibration: Mapping[str, Any] | None = None,
    primary: Sides | None = None,
    noise_floor: float = NOISE_FLOOR,
    leave_out_disturbed: bool = False,
    traces: Mapping[int, Trace] | None = None,
    unreadable: Sequence[str] = (),
    growth: Sequence[Growth] = (),
    workload: Workload | None = None,
) -> dict[str, Any]:
    """The report's document. calibration: of the node, if it was calibrated. primary: the sides of the question.
    traces: of `to_show`, by run. unreadable: descriptions of unreadable files of runs. growth: memory of both modes.
    workload: of an experiment that the template made.

    leave_out_disturbed: whether runs beside foreign load are left out. They stay among the raw samples.
    """
    judged = processes
    if leave_out_disturbed:
        judged = [process for process in processes if not disturbed(process)]
    ahead = outlook(judged, profiles)
    measured = _measured(experiment, processes, judged, calibration, primary, noise_floor)
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "experiment": dataclasses.asdict(experiment),
        "question": _question(experiment, judged, primary),
        **measured,
        "marks": [*measured["marks"], *unreadable],
        "communication": [dataclasses.asdict(row) for row in communication(judged)],
        "forecast": dataclasses.asdict(ahead),
        "memory": [dataclasses.asdict(row) for row in memory],
        "memory_growth": [dataclasses.asdict(each) for each in growth],
        "workload": None if workload is None else dataclasses.asdict(workload),
        "samples": _samples(processes),
        "timeline": timeline.replayed(ahead, profiles),
        "traced": timeline.traced(processes, traces or {}),
        "card": report_card(measured),
    }
    if workload is not None:
        document["question"] = of_workload.QUESTION
    document["answer"] = of_workload.answer(document) if workload and workload.networks else answer(document)
    document["conclusion"] = " ".join(document["answer"])
    return document


def card(
    experiment: Asked,
    processes: Sequence[Process],
    calibration: Mapping[str, Any] | None = None,
    primary: Sides | None = None,
    noise_floor: float = NOISE_FLOOR,
) -> dict[str, Any]:
    """The report card and the environment, without the parts of the report that need profiles or traces."""
    measured = _measured(experiment, processes, processes, calibration, primary, noise_floor)
    return {"card": report_card(measured), "environment": measured["environment"]}


def _measured(
    experiment: Asked,
    everyone: Sequence[Process],
    processes: Sequence[Process],
    calibration: Mapping[str, Any] | None,
    primary: Sides | None,
    noise_floor: float,
) -> dict[str, Any]:
    """The parts of a report that its card judges. processes: those of `everyone` that are not left out."""
    return {
        "design": _design(experiment, processes, noise_floor),
        "environment": _environment(processes),
        "scaling": dataclasses.asdict(scaling(processes)),
        "sweep": dataclasses.asdict(sweep(processes, noise_floor=noise_floor, primary=primary)),
        "efficiency": [dataclasses.asdict(row) for row in efficiencies(processes)],
        "roofline": [dataclasses.asdict(row) for row in rooflines(processes)],
        "marks": list(marks(everyone)),
        "disturbed": next(iter(summary(everyone)), None),
        "unwatched": [process.run_id for process in everyone if process.foreign_share is None],
        "left_out": sorted({p.run_id for p in everyone} - {p.run_id for p in processes}),
        "calibration": None if calibration is None else dict(calibration),
    }


def _question(experiment: Asked, processes: Sequence[Process], primary: Sides | None) -> str:
    if experiment.name.rstrip().endswith("?"):
        return experiment.name.strip()
    if primary is not None:
        a, b = (settings(values) for values in primary)
        return f"Is {b} faster than {a}?"
    axes = axes_of(processes)
    if not axes:
        return "How long does a step take?"
    return f"How does the time of a training step depend on {enumerated(axes)}?"


def _design(experiment: Asked, processes: Sequence[Process], noise_floor: float) -> dict[str, Any]:
    request = experiment.request
    return {
        "axes": {name: list(values) for name, values in (request.get("axes") or {}).items()},
        "zip": list(request.get("zip") or []),
        "repetitions": request.get("repetitions", 1),
        "extended": experiment.extended,
        "order": request.get("order", "interleaved"),
        "seed": request.get("seed", 0),
        "primary_metric": "median step time",
        "stop": request.get("stop"),
        "stopping": experiment.stopping,
        "noise_floor": noise_floor,
        "variants": len(by_variant(processes)),
        "processes": len(processes),
        "timed_steps": sum(len(process.timed_s) for process in processes),
        "warmup_steps": sorted({int(process.config["warmup"]) for process in processes}),
        "problem": {name: processes[0].config[name] for name in TRAINING}
        if processes
        else {},
    }


def _environment(processes: Sequence[Process]) -> dict[str, Any]:
    if not processes:
        return {"known": {}, "differs": [], "runtimes": {}}
    first = processes[0].environment
    return {
        "known": {name: first[name] for name in (*FINGERPRINT, "core_version") if name in first},
        "differs": environment_differences(processes),
        "runtimes": _runtimes(processes),
    }


def _runtimes(processes: Sequence[Process]) -> dict[str, list[str]]:
    """OpenMP runtimes, by name and version, and the schedulers that ran under each."""
    found: dict[str, list[str]] = {}
    for facts in distinct(processes):
        runtime = facts.environment.get("scheduler") or {}
        if "runtime" in runtime:
            schedulers = found.setdefault(f"{runtime['runtime']} ({runtime['version']})", [])
            if facts.config["scheduler"] not in schedulers:
                schedulers.append(str(facts.config["scheduler"]))
    return found


def _samples(processes: Sequence[Process]) -> list[dict[str, Any]]:
    """outlier: whether the process is an outlier of its variant; outlier_steps: indices among its timed steps."""
    return [
        {
            "variant": dataclasses.asdict(variant_of(group)),
            "processes": [
                {
                    "run_id": process.run_id,
                    "step_s": list(process.timed_s),
                    "outlier": i in odd,
                    "outlier_steps": odd_steps[i],
                }
                for i, process in enumerate(group)
            ],
        }
        for group in by_variant(processes)
        for odd in [outliers([process.median_step_s for process in group])]
        for odd_steps in [outliers_of_each([process.timed_s for process in group])]
    ]
