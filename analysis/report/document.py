"""Makes a report of what is known of an experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

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
from taskloom.analysis.report.card import report_card
from taskloom.analysis.report.conclusion import answer
from taskloom.analysis.report.content import (
    Measured,
    ProcessSamples,
    Report,
    ReportCalibration,
    ReportCard,
    ReportDesign,
    ReportEnvironment,
    ReportExperiment,
    VariantSamples,
)
from taskloom.analysis.report.workload import QUESTION
from taskloom.analysis.scaling import scaling
from taskloom.analysis.statistics import outliers, outliers_of_each
from taskloom.analysis.sweep import axes_of, sweep
from taskloom.analysis.trace import Trace
from taskloom.analysis.validity import disturbed, marks, summary
from taskloom.analysis.variants import Sides, by_variant, variant_of
from taskloom.analysis.wording import is_or_are, settings, words
from taskloom.analysis.workload import Workload

TRAINING = tuple(name for name in declared("group", "training") if name not in with_role("length"))


def build(
    experiment: ReportExperiment,
    processes: Sequence[Process],
    profiles: Mapping[int, Profile],
    memory: Sequence[MemoryRow],
    calibration: ReportCalibration | None = None,
    primary: Sides | None = None,
    noise_floor: float = NOISE_FLOOR,
    leave_out_disturbed: bool = False,
    traces: Mapping[int, Trace] | None = None,
    unreadable: Sequence[str] = (),
    growth: Sequence[Growth] = (),
    workload: Workload | None = None,
) -> Report:
    """The report. calibration: of the node, if it was calibrated. primary: the sides of the question. traces: of
    `to_show`, by run. unreadable: descriptions of unreadable files of runs. growth: memory of both modes. workload: of
    an experiment that the template made.

    leave_out_disturbed: whether runs beside foreign load are left out. They stay among the raw samples.
    """
    judged = processes
    if leave_out_disturbed:
        judged = [process for process in processes if not disturbed(process)]
    ahead = outlook(judged, profiles)
    measured = _measured(experiment, processes, judged, calibration, primary, noise_floor)
    question = measured.question if workload is None else QUESTION
    shown = replace(measured, question=question, marks=[*measured.marks, *unreadable])
    return concluded(Report(
        **vars(shown),
        communication=communication(judged),
        forecast=ahead,
        memory=list(memory),
        memory_growth=list(growth),
        workload=workload,
        samples=_samples(processes),
        timeline=timeline.replayed(ahead, profiles),
        traced=timeline.traced(processes, traces or {}),
        card=report_card(measured),
        answer=[],
        conclusion="",
    ))  # fmt: skip


def concluded(report: Report) -> Report:
    """The report with the answer that follows from its parts."""
    points = answer(report)
    return replace(report, answer=points, conclusion=" ".join(points))


def card(
    experiment: ReportExperiment,
    processes: Sequence[Process],
    calibration: ReportCalibration | None = None,
    primary: Sides | None = None,
    noise_floor: float = NOISE_FLOOR,
) -> ReportCard:
    """The report card and the environment, without the parts of the report that need profiles or traces."""
    measured = _measured(experiment, processes, processes, calibration, primary, noise_floor)
    return ReportCard(report_card(measured), measured.environment)


def _measured(
    experiment: ReportExperiment,
    everyone: Sequence[Process],
    processes: Sequence[Process],
    calibration: ReportCalibration | None,
    primary: Sides | None,
    noise_floor: float,
) -> Measured:
    """The parts of a report that its card judges. processes: those of `everyone` that are not left out."""
    return Measured(
        schema="taskloom.report/1",
        experiment=experiment,
        question=_question(experiment, processes, primary),
        design=_design(experiment, processes, noise_floor),
        environment=_environment(processes),
        scaling=scaling(processes),
        sweep=sweep(processes, noise_floor=noise_floor, primary=primary),
        efficiency=efficiencies(processes),
        roofline=rooflines(processes),
        marks=list(marks(everyone)),
        disturbed=next(iter(summary(everyone)), None),
        unwatched=[process.run_id for process in everyone if process.foreign_share is None],
        left_out=sorted({p.run_id for p in everyone} - {p.run_id for p in processes}),
        calibration=calibration,
    )


def _question(experiment: ReportExperiment, processes: Sequence[Process], primary: Sides | None) -> str:
    if experiment.name.rstrip().endswith("?"):
        return experiment.name.strip()
    if primary is not None:
        a, b = (settings(values) for values in primary)
        verb = is_or_are(*next(iter(primary[1].items()))) if len(primary[1]) == 1 else "is"
        return f"{verb.capitalize()} {b} faster than {a}?"
    axes = axes_of(processes)
    if not axes:
        return "How long does a step take?"
    return f"How does the time of a step depend on {enumerated(map(words, axes))}?"


def _design(experiment: ReportExperiment, processes: Sequence[Process], noise_floor: float) -> ReportDesign:
    request = experiment.request
    configs = [facts.config for facts in distinct(processes)]
    return ReportDesign(
        axes={name: list(values) for name, values in (request.get("axes") or {}).items()},
        zip=list(request.get("zip") or []),
        repetitions=request.get("repetitions", 1),
        extended=experiment.extended,
        order=request.get("order", "interleaved"),
        seed=request.get("seed", 0),
        primary_metric="median step time",
        stop=request.get("stop"),
        stopping=experiment.stopping,
        noise_floor=noise_floor,
        variants=len(by_variant(processes)),
        processes=len(processes),
        timed_steps=sum(len(process.timed_s) for process in processes),
        warmup_steps=sorted({int(process.config["warmup"]) for process in processes}),
        problem={
            name: configs[0][name] for name in TRAINING if configs
            and all(config[name] == configs[0][name] for config in configs)
        },
    )


def _environment(processes: Sequence[Process]) -> ReportEnvironment:
    first = processes[0].environment if processes else {}
    return ReportEnvironment(
        known={name: first[name] for name in (*FINGERPRINT, "core_version") if name in first},
        differs=environment_differences(processes),
        runtimes=_runtimes(processes),
    )


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


def _samples(processes: Sequence[Process]) -> list[VariantSamples]:
    found = []
    for group in by_variant(processes):
        odd, odd_steps = outliers([p.median_step_s for p in group]), outliers_of_each([p.timed_s for p in group])
        rows = [
            ProcessSamples(process.run_id, list(process.timed_s), i in odd, odd_steps[i])
            for i, process in enumerate(group)
        ]
        found.append(VariantSamples(variant_of(group), rows))
    return found
