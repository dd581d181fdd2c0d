"""Thresholds of series: with their histories, and against the runs of an ended experiment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlalchemy import select
from sqlalchemy.orm import Session

from taskloom.analysis import thresholds
from taskloom.analysis.history import Series
from taskloom.analysis.statistics import step_interval
from taskloom.analysis.thresholds import StepLimits
from taskloom.server.alerts.models import Threshold
from taskloom.server.db import Database
from taskloom.server.queue.tables.experiments import Experiment
from taskloom.server.queue.tables.runs import Run
from taskloom.server.read.analysis import reading


@dataclass(frozen=True)
class Judgement:
    """An experiment's runs of a series against its threshold. run_id: the first of them. ratio: median / reference."""

    series_id: int
    run_id: int
    state: thresholds.State
    ratio: float
    sentence: str


def with_thresholds(session: Session, found: Sequence[Series]) -> list[Series]:
    """Series with the thresholds that are set."""
    firsts = [one.points[0].run_id for one in found]
    query = select(Run.id, Threshold).join(Threshold, Threshold.series_id == Run.series_id).where(Run.id.in_(firsts))
    known = {run_id: _limits(threshold) for run_id, threshold in session.execute(query)}
    return [replace(one, threshold=known.get(one.points[0].run_id)) for one in found]


def judgements(database: Database, experiment_id: int, series_id: int | None = None) -> list[Judgement]:
    """The succeeded runs of an experiment, series by series, against the thresholds of their series. Those that confirm
    a change by its builds are not judged. series_id: only this series."""
    with database.read(snapshot=True) as session:
        experiment = session.get(Experiment, experiment_id)
        if experiment is None or experiment.request.get("builds"):
            return []
        query = select(Run.id, Threshold).join(Threshold, Threshold.series_id == Run.series_id)
        succeeded = query.where(Run.experiment_id == experiment_id, Run.state == "succeeded").order_by(Run.id)
        if series_id is not None:
            succeeded = succeeded.where(Run.series_id == series_id)
        runs: dict[Threshold, list[int]] = {}
        for run_id, threshold in session.execute(succeeded):
            runs.setdefault(threshold, []).append(run_id)
        return [_judgement(session, threshold, of_it) for threshold, of_it in runs.items()]


def newest(database: Database, series_id: int) -> list[Judgement]:
    """The runs of a series in the newest ended experiment that has some, against its threshold."""
    of_it = Run.series_id == series_id, Run.state == "succeeded", Run.variant["build"].as_string().is_(None)
    ended = select(Experiment.id).join(Run, Run.experiment_id == Experiment.id)
    ended = ended.where(*of_it, Experiment.finished_at.is_not(None)).order_by(Experiment.finished_at.desc())
    with database.read() as session:
        experiment_id = session.scalars(ended.limit(1)).first()
    return [] if experiment_id is None else judgements(database, experiment_id, series_id)


def _limits(threshold: Threshold) -> StepLimits:
    return StepLimits(threshold.reference_s, threshold.lower, threshold.upper)


def _judgement(session: Session, threshold: Threshold, run_ids: Sequence[int]) -> Judgement:
    processes = reading.of_runs(session, run_ids)
    step_s = step_interval(processes)
    config = processes[0].config
    variant = {name: config[name] for name in ("scheduler", "threads")}
    judged = thresholds.judge_one(_limits(threshold), variant, step_s, len(processes))
    ratio = step_s.median / threshold.reference_s
    return Judgement(threshold.series_id, run_ids[0], judged.state, ratio, judged.sentence)
