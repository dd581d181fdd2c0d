"""Thresholds of series: with their histories, and against the runs of an ended experiment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from sqlalchemy import select
from sqlalchemy.orm import Session

from taskloom.analysis import thresholds
from taskloom.analysis.history import Series
from taskloom.analysis.statistics import step_interval
from taskloom.analysis.thresholds import Limits
from taskloom.server.alerts.models import Threshold
from taskloom.server.db import Database
from taskloom.server.queue.tables.experiments import Experiment
from taskloom.server.queue.tables.runs import Run
from taskloom.server.read.analysis import reading

COLUMNS = (Threshold.reference_s, Threshold.lower, Threshold.upper)


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
    query = select(Run.id, *COLUMNS).join(Threshold, Threshold.series_id == Run.series_id).where(Run.id.in_(firsts))
    known = {run_id: Limits(*limits) for run_id, *limits in session.execute(query)}
    return [replace(one, threshold=known.get(one.points[0].run_id)) for one in found]


def judgements(database: Database, experiment_id: int) -> list[Judgement]:
    """The succeeded runs of an experiment, series by series, against the thresholds of their series. Those that confirm
    a change by its builds are not judged."""
    with database.read(snapshot=True) as session:
        experiment = session.get(Experiment, experiment_id)
        if experiment is None or experiment.request.get("builds"):
            return []
        query = select(Run.series_id, Run.id, *COLUMNS).join(Threshold, Threshold.series_id == Run.series_id)
        succeeded = query.where(Run.experiment_id == experiment_id, Run.state == "succeeded").order_by(Run.id)
        runs: dict[tuple[int, Limits], list[int]] = {}
        for series_id, run_id, *limits in session.execute(succeeded):
            runs.setdefault((series_id, Limits(*limits)), []).append(run_id)
        return [_judgement(session, series_id, limits, of_it) for (series_id, limits), of_it in runs.items()]


def _judgement(session: Session, series_id: int, limits: Limits, run_ids: Sequence[int]) -> Judgement:
    processes = reading.of_runs(session, run_ids)
    step_s = step_interval(processes)
    config = processes[0].config
    row = {"variant": {name: config[name] for name in ("scheduler", "threads")}, "runs": len(processes)}
    judged = thresholds.judge_one(limits, {**row, "step_s": asdict(step_s)})
    return Judgement(series_id, run_ids[0], judged.state, step_s.median / limits.reference_s, judged.sentence)
