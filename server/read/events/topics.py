"""Current states of all topics of events, read with one poll for all listeners."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from sqlalchemy import ColumnElement, and_, or_, select
from sqlalchemy.orm import Session

from taskloom.contract.attempts import ProgressSeen
from taskloom.contract.events import ExperimentEvent, RunEvent
from taskloom.contract.overview import Overview
from taskloom.contract.runs import LogLine, StepSeen
from taskloom.contract.workers import WorkerPage
from taskloom.server.db import Database, utc
from taskloom.server.queue.attempts import steps
from taskloom.server.queue.experiments import details
from taskloom.server.queue.tables.attempts import Attempt, OutputLine, is_active
from taskloom.server.queue.tables.experiments import Experiment
from taskloom.server.queue.tables.runs import Run
from taskloom.server.queue.tables.states import ACTIVE, RUN
from taskloom.server.queue.workers import registry
from taskloom.server.read.overview.overviews import Overviews
from taskloom.server.settings import Settings

LINES = 200  # lines of a run per poll
RUNS = 200  # runs per statement for lines


@dataclass(frozen=True)
class Topic:
    """Topic of events: a run, an experiment, or (without an id) the overview or the workers."""

    kind: str
    id: int = 0

    def __str__(self) -> str:
        return f"{self.kind}:{self.id}" if self.id else self.kind


@dataclass(frozen=True)
class TopicState:
    """News of a topic: its state, and lines of output with their ids. more: there are more lines than one poll reads.

    again_s: the state comes from a cache and may have changed; seconds until it is computed again. passing: fields
    whose changes alone cause no event.
    """

    topic: Topic
    state: RunEvent | ExperimentEvent | Overview | WorkerPage
    ended: bool
    lines: list[tuple[int, LogLine]] = field(default_factory=list)
    more: bool = False
    again_s: float = 0.0
    passing: Mapping[str, Any] = field(default_factory=dict)


OVERVIEW, WORKERS = Topic("overview"), Topic("workers")


def look_at_all(
    database: Database, settings: Settings, overviews: Overviews, topics: Mapping[Topic, int]
) -> dict[Topic, TopicState]:
    """News of each existing topic. topics: the id of the last line that is known, for each topic."""
    found = look(database, {topic: line for topic, line in topics.items() if topic.id})
    if OVERVIEW in topics:
        passing = {"at": True, "eta_s": True, "eta_basis": True, "experiments": {"__all__": {"eta_s", "eta_basis"}}}
        overview, again_s = overviews.latest()
        found[OVERVIEW] = TopicState(OVERVIEW, overview, ended=False, again_s=again_s, passing=passing)
    if WORKERS in topics:
        page = registry.page(database, settings, None, settings.max_page)
        found[WORKERS] = TopicState(WORKERS, page, ended=False, passing={"items": {"__all__": {"seen_at", "ends_at"}}})
    return found


def look(database: Database, topics: Mapping[Topic, int]) -> dict[Topic, TopicState]:
    """News of runs and experiments."""
    after = {topic.id: line for topic, line in topics.items() if topic.kind == "run"}
    ids = [topic.id for topic in topics if topic.kind == "experiment"]
    with database.read(snapshot=True) as session:
        found = list(_experiments(session, ids))
        lines = _lines(session, after)
        newest = steps.newest(session, after) if after else {}
        for event in _run_events(session, Run.id.in_(after), newest) if after else ():
            mine = lines.get(event.run_id, [])
            more = len(mine) == LINES
            ended = event.state in RUN.final() and not more
            found.append(TopicState(Topic("run", event.run_id), event, ended, mine, more))
    return {one.topic: one for one in found}


def _experiments(session: Session, ids: list[int]) -> Iterator[TopicState]:
    if not ids:
        return
    under_way = and_(Run.experiment_id.in_(ids), Run.state.in_(ACTIVE))
    active: dict[int, list[RunEvent]] = {}
    of_whom = dict(session.execute(select(Run.id, Run.experiment_id).where(under_way)).all())
    for event in _run_events(session, under_way):
        active.setdefault(of_whom[event.run_id], []).append(event)
    rows = {row.id: row for row in session.scalars(select(Experiment).where(Experiment.id.in_(ids)))}
    for summary in details.summaries(session, list(rows.values())):
        state = ExperimentEvent(
            experiment_id=summary.id,
            state=summary.state,
            runs=summary.runs,
            by_state=summary.by_state,
            active=active.get(summary.id, []),
            phase=details.phase(session, rows[summary.id]),
        )
        yield TopicState(Topic("experiment", summary.id), state, summary.state != "active")


def _run_events(
    session: Session, which: ColumnElement[bool], newest: Mapping[int, list[StepSeen]] = MappingProxyType({})
) -> list[RunEvent]:
    query = select(Run.id, Run.state, Run.attempts, Attempt.progress).outerjoin(
        Attempt, and_(Attempt.run_id == Run.id, is_active())
    )
    return [
        RunEvent(
            run_id=run_id,
            state=state,
            attempt_no=attempts,
            progress=ProgressSeen.kept(progress),
            steps=newest.get(run_id, []),
        )
        for run_id, state, attempts, progress in session.execute(query.where(which).order_by(Run.id))
    ]


def _lines(session: Session, after: Mapping[int, int]) -> dict[int, list[tuple[int, LogLine]]]:
    """The first LINES lines of each run after the given id, in the order of arrival."""
    found: dict[int, list[tuple[int, LogLine]]] = {}
    count: Counter[int] = Counter()
    positions = sorted(after.items())
    for first in range(0, len(positions), RUNS):
        chunk = positions[first : first + RUNS]
        new = or_(*(and_(OutputLine.run_id == run_id, OutputLine.id > line) for run_id, line in chunk))
        query = select(OutputLine, Attempt.attempt_no).join(Attempt, Attempt.id == OutputLine.attempt_id)
        query = query.where(new).order_by(OutputLine.id)
        for row, attempt_no in session.execute(query.limit(LINES * len(chunk))):
            count[row.run_id] += 1
            if count[row.run_id] <= LINES:
                line = LogLine(
                    run_id=row.run_id, attempt_no=attempt_no, line_no=row.line_no, at=utc(row.at), text=row.text
                )
                found.setdefault(row.run_id, []).append((row.id, line))
    return found
