"""Passes stored results to analysis/, which uses neither the database nor HTTP, and converts its answers."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, select

from gpt2core.spec.config import NAMES, TrainConfig
from taskloom.analysis.calibration import Calibration, calibrate, with_rate
from taskloom.analysis.causes import EfficiencyRow, RooflineRow, efficiencies, rooflines
from taskloom.analysis.compared import Comparison
from taskloom.analysis.comparison import NOISE_FLOOR
from taskloom.analysis.comparison import compare as compare_processes
from taskloom.analysis.history import CONFIRMING_PAIRS, CONFIRMING_RUNS, Confirmation, Series
from taskloom.analysis.history import series as series_of
from taskloom.analysis.membership import in_family
from taskloom.analysis.memory import Memory, MemoryRow, MemoryTable
from taskloom.analysis.memory import memory as memory_of
from taskloom.analysis.outlook import Outlook, outlook, sources, usable_runs
from taskloom.analysis.processes import Process
from taskloom.analysis.profile import Profile
from taskloom.analysis.report import Report, ReportCalibration, ReportCard, ReportExperiment, build, to_show
from taskloom.analysis.report import card as report_card
from taskloom.analysis.scaling import ScalingTable
from taskloom.analysis.scaling import scaling as scale_processes
from taskloom.analysis.sweep import Sweep, planned_by
from taskloom.analysis.sweep import sweep as sweep_processes
from taskloom.analysis.validity import disturbed
from taskloom.analysis.variants import Group, Sides, by_variant, variant_of
from taskloom.analysis.workload import Workload
from taskloom.analysis.workload import workload as workload_of
from taskloom.contract.artifacts import ArtifactSummary
from taskloom.contract.experiments import ExperimentRequest
from taskloom.contract.labels import build_label
from taskloom.contract.templates import WORKLOAD
from taskloom.server.artifact_store import Store
from taskloom.server.db import Database, existing
from taskloom.server.errors import InvalidRequest, NothingToCompare
from taskloom.server.queue.experiments import details
from taskloom.server.queue.experiments.memory import arenas_bytes
from taskloom.server.queue.tables.experiments import Experiment
from taskloom.server.queue.tables.runs import Run
from taskloom.server.queue.tables.states import ACTIVE
from taskloom.server.queue.tables.workers import Worker
from taskloom.server.read.analysis import reading
from taskloom.server.read.analysis.commits import with_commits
from taskloom.server.read.analysis.growth import MOST_BATCH, largest, memory_growth
from taskloom.server.read.analysis.selection import Selection
from taskloom.server.read.analysis.thresholds import with_thresholds

LATEST = 200  # runs per configuration that are searched for changes

T = TypeVar("T")


def compare(
    database: Database, a: Selection, b: Selection, noise_floor: float, leave_out_flagged: bool = False
) -> Comparison:
    """Raises NotFound or NothingToCompare."""
    with database.read(snapshot=True) as session:
        left, right = reading.selected(session, a), reading.selected(session, b)
        of_both = {process.experiment_id for process in (*left, *right)}
        experiment_id = of_both.pop() if len(of_both) == 1 else None
        everyone, primary = reading.questioned(session, experiment_id) if experiment_id is not None else ([], None)
    for name, side in (("a", left), ("b", right)):
        if not side:
            raise NothingToCompare(f"{name} selects no run that has succeeded")
    if leave_out_flagged:
        left, right, everyone = (
            [dataclasses.replace(p, leave_out_flagged=True) for p in side] for side in (left, right, everyone)
        )
    found = compare_processes(left, right, noise_floor)
    if experiment_id is not None:
        found = in_family(found, left, right, experiment_id, everyone, primary)
    return found


def scaling(database: Database, experiment_id: int) -> ScalingTable:
    """Raises NotFound."""
    with database.read(snapshot=True) as session:
        processes = reading.selected(session, Selection(experiment_id=experiment_id))
        planned = session.get_one(Experiment, experiment_id).runs
    found = scale_processes(processes)
    missing = []
    if len(processes) < planned:
        missing = [f"{planned - len(processes)} of {planned} runs have not succeeded (yet)"]
    warnings, brief = [*missing, *found.warnings], [*missing, *found.brief]
    return ScalingTable(found.base, found.rows, warnings, brief, found.goals, experiment_id=experiment_id)


def sweep(database: Database, experiment_id: int, axis: str | None, noise_floor: float) -> Sweep:
    """Raises NotFound or InvalidRequest."""
    if axis is not None and axis not in NAMES:
        accepted = "a setting: " + ", ".join(NAMES)
        raise InvalidRequest([{"pointer": "#query/axis", "field": "axis", "value": axis, "accepted": accepted}])
    processes, primary = reading.with_question(database, experiment_id)
    return sweep_processes(processes, axis, noise_floor, primary)


def efficiency(database: Database, experiment_id: int) -> list[EfficiencyRow]:
    """Raises NotFound."""
    return efficiencies(reading.of_experiment(database, experiment_id, causes=True))


def roofline(database: Database, experiment_id: int) -> list[RooflineRow]:
    """Raises NotFound."""
    return rooflines(reading.of_experiment(database, experiment_id, causes=True))


def forecast(database: Database, store: Store, experiment_id: int, cores: Sequence[int]) -> Outlook:
    """Raises NotFound."""
    processes = reading.of_experiment(database, experiment_id, causes=True)
    profiles, unreadable = _profiles(database, store, processes)
    found = outlook(processes, profiles, cores)
    return dataclasses.replace(found, missing=[*found.missing, *unreadable])


def _profiles(database: Database, store: Store, processes: Sequence[Process]) -> tuple[dict[int, Profile], list[str]]:
    """Profiles for a forecast by run id, and errors of unreadable profiles, which other runs' profiles replace."""
    there = reading.left(database, reading.PROFILE, usable_runs(processes))
    found: dict[int, Profile] = {}
    unreadable: list[str] = []
    while unread := [run_id for run_id in sources(processes, there) if run_id not in found]:
        read, odd = _readable({run_id: there[run_id] for run_id in unread}, partial(reading.profile, store))
        found |= read
        unreadable += odd
        for run_id in unread:
            if run_id not in read:
                del there[run_id]
    return found, unreadable


def _readable(
    files: Mapping[int, ArtifactSummary], read: Callable[[int, ArtifactSummary], T | None]
) -> tuple[dict[int, T], list[str]]:
    """Artifacts by run, and errors of unreadable ones."""
    found: dict[int, T] = {}
    unreadable = []
    for run_id, file in files.items():
        try:
            content = read(run_id, file)
        except ValueError as error:
            unreadable.append(str(error))
            continue
        if content is not None:
            found[run_id] = content
    return found, unreadable


def report(database: Database, store: Store, experiment_id: int, leave_out_disturbed: bool = False) -> Report:
    """The report of an experiment. Raises NotFound."""
    experiment = _asked(database, experiment_id)
    processes, primary = reading.with_question(database, experiment_id, causes=True)
    profiles, unreadable = _profiles(database, store, processes)
    traced = reading.left(database, reading.TRACE, [process.run_id for process in processes])
    shown = {run_id: traced[run_id] for run_id in to_show(processes, traced)}
    traces, also_unreadable = _readable(shown, partial(reading.trace, store))
    rows = _memory_rows(processes)
    judged = [each for each in processes if not (leave_out_disturbed and disturbed(each))]
    return build(
        experiment,
        processes,
        profiles,
        rows,
        _calibration_for(database, processes, primary),
        primary=primary,
        leave_out_disturbed=leave_out_disturbed,
        traces=traces,
        unreadable=[*unreadable, *also_unreadable],
        growth=memory_growth(by_variant(processes), rows),
        workload=workload_of(experiment_id, judged, _measured_memory_rows(judged), memory_growth)
        if experiment.request.get("template") == WORKLOAD
        else None,
    )


def card(database: Database, experiment_id: int) -> ReportCard:
    """The report card of an experiment, and its environment. Raises NotFound."""
    experiment = _asked(database, experiment_id)
    processes, primary = reading.with_question(database, experiment_id, causes=True)
    return report_card(experiment, processes, _calibration_for(database, processes, primary), primary)


def _asked(database: Database, experiment_id: int) -> ReportExperiment:
    """Raises NotFound."""
    detail = details.show(database, experiment_id)
    return ReportExperiment(
        experiment_id=detail.id,
        name=detail.name,
        state=detail.state,
        runs=detail.runs,
        by_state=detail.by_state,
        created_at=detail.created_at.isoformat(),
        request=detail.request,
        stopping=None if detail.stopping is None else detail.stopping.model_dump(),
        node_time=detail.node_time,
        node_time_missing=detail.node_time_missing,
        extended=detail.extended,
    )


def memory(database: Database, experiment_id: int) -> MemoryTable:
    """Raises NotFound."""
    processes = reading.of_experiment(database, experiment_id, causes=True)
    rows = _memory_rows(processes)
    return MemoryTable(experiment_id, rows, memory_growth(by_variant(processes), rows))


def workload(database: Database, experiment_id: int) -> Workload:
    """Raises NotFound."""
    processes = reading.of_experiment(database, experiment_id, causes=True)
    return workload_of(experiment_id, processes, _measured_memory_rows(processes), memory_growth)


def _memory_rows(processes: Sequence[Process]) -> list[MemoryRow]:
    return [MemoryRow(variant_of(group), _memory(group)) for group in by_variant(processes)]


def _measured_memory_rows(processes: Sequence[Process]) -> list[MemoryRow]:
    """Rows without any size that was not measured: each would be planned, a dozen for each variant."""
    measured = partial(memory_of, batch=1, seq=1, context=1, most_batch=1, sizes_at=lambda *_: {})
    return [MemoryRow(variant_of(group), measured(*_measured(group))) for group in by_variant(processes)]


def _measured(group: Group) -> tuple[list[Any], list[Any], list[Any]]:
    """Memory of each process of a variant: arenas with the peak, what was resident, and kernels that it compiled."""
    results = [process.result for process in group]
    return (
        [result["memory_bytes"] for result in results],
        [result.get("resident_bytes") or {} for result in results],
        [result.get("compiled") for result in results],
    )


def _memory(group: Group) -> Memory:
    config = TrainConfig.from_dict(dict(group[0].config))

    @functools.lru_cache
    def sizes_at(batch: int, seq: int) -> dict[str, int]:
        return arenas_bytes(dataclasses.replace(config, batch=batch * config.batch_ranks, seq=seq))

    most = {"context": 1, "most_batch": 1}
    if not config.generate:
        shape = {"batch": config.batch, "seq": config.seq}
        most = {"context": largest(config, shape, "seq", config.model.context),
                "most_batch": largest(config, shape, "batch", MOST_BATCH) // config.batch_ranks}  # fmt: skip
    batch = config.batch // config.batch_ranks  # memory is that of rank 0
    measured, resident, compiled = _measured(group)
    return memory_of(measured, resident, compiled, batch, config.seq, sizes_at=sizes_at, **most)


def history(
    database: Database, noise_floor: float, limit: int, which: ColumnElement[bool] | None = None, commits_url: str = ""
) -> list[Series]:
    """Series of the latest succeeded runs, or of a selection of them. commits_url: template of links to commits."""
    with database.read(snapshot=True) as session:
        in_series = Run.state == "succeeded", Run.series_id.is_not(None)
        query = select(Run.id).where(*in_series).order_by(Run.finished_at.desc(), Run.id.desc())
        latest = session.scalars((query if which is None else query.where(which)).limit(limit)).all()
        confirming = Experiment.request["confirms"].as_integer()
        experiments = session.scalars(select(Experiment).where(confirming.is_not(None)).order_by(Experiment.id)).all()
        confirmations = {}
        for experiment in experiments:
            runs = session.execute(select(Run.id, Run.state).where(Run.experiment_id == experiment.id)).all()
            confirmations[int(experiment.request["confirms"])] = Confirmation(
                experiment.id,
                frozenset(run.id for run in runs if run.state == "succeeded"),
                any(run.state in ("queued", *ACTIVE) for run in runs),
                tuple(experiment.request.get("builds", ())),
            )
        found = series_of(reading.of_runs(session, latest[::-1]), confirmations, noise_floor)
        return with_thresholds(session, with_commits(session, found, commits_url))


def history_of(
    database: Database, noise_floor: float, limit: int, run_id: int, commits_url: str = ""
) -> list[Series]:
    """The series that a run belongs to, by its latest runs, if the run is among them. Raises NotFound."""
    with database.read() as session:
        run = existing(session, Run, run_id)
    found = history(database, noise_floor, limit, Run.series_id == run.series_id, commits_url)
    return [one for one in found if any(point.run_id == run_id for point in one.points)]


def confirmation(database: Database, run_id: int) -> ExperimentRequest:
    """Request that confirms the change whose first run is `run_id`. Raises NotFound."""
    with database.read() as session:
        run = existing(session, Run, run_id)
        spec = {name: value for name, value in run.spec.items() if value is not None}
        experiment = session.get_one(Experiment, run.experiment_id)
    builds = _kept_builds(database, run_id)
    request = {
        "name": f"confirm run {run_id}",
        "base": spec,
        "repetitions": CONFIRMING_PAIRS if builds else CONFIRMING_RUNS,
        "confirms": run_id,
        "requires": experiment.request.get("requires", {}),
        "builds": builds,
    }
    return ExperimentRequest.model_validate(request)


def _kept_builds(database: Database, run_id: int) -> list[str]:
    """The builds before and after the change at a run, if nothing else changed and a worker of the run's node has both;
    otherwise none."""
    found = history_of(database, NOISE_FLOOR, LATEST, run_id)
    builds = next((change.builds for one in found for change in one.changes if change.first_after == run_id), [])
    if not builds:
        return []
    required = {build_label(build) for build in builds}
    with database.read() as session:
        node = session.get_one(Run, run_id).node
        query = select(Worker).where(Worker.node == node, Worker.left_at.is_(None))
        offered = any(required <= {*worker.labels} for worker in session.scalars(query))
    return builds if offered else []


def calibrations(database: Database) -> list[Calibration]:
    """The latest calibration of each node, from A/A experiments of which enough runs have succeeded."""
    of_nodes: dict[str, list[Calibration]] = {}
    with database.read(snapshot=True) as session:
        for experiment_id in reading.calibrating(session):
            runs = select(Run.id).where(Run.experiment_id == experiment_id, Run.state == "succeeded")
            by_node: dict[str, list[Process]] = {}
            in_turn = session.scalars(runs.order_by(Run.finished_at, Run.id)).all()
            for process in reading.of_runs(session, in_turn):
                by_node.setdefault(str(process.environment.get("node", "")), []).append(process)
            for node, processes in by_node.items():
                found = calibrate(experiment_id, processes)
                if found is not None:
                    of_nodes.setdefault(node, []).append(found)
    return [with_rate(found[0], found) for _, found in sorted(of_nodes.items())]


def _calibration_for(
    database: Database, processes: Sequence[Process], primary: Sides | None
) -> ReportCalibration | None:
    """Calibration of the processes' node, with the smallest difference that it can detect with as many pairs as there
    are repetitions. None: the processes ran on several nodes, or their node is not calibrated."""
    nodes = {str(process.environment.get("node", "")) for process in processes}
    known = {found.node: found for found in calibrations(database)} if len(nodes) == 1 else {}
    found = known.get(next(iter(nodes), ""))
    if found is None:
        return None
    pairs = min(len(group) for group in by_variant(processes))
    sequential = any(process.stop_rule for process in processes)
    statements = 1 if primary is not None else max(1, planned_by(processes).size)
    detectable = found.at(pairs, statements, sequential)
    return ReportCalibration(found.experiment_id, found.node, pairs, detectable, found.false_alarms, found.comparisons)
