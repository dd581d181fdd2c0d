"""Remaining time of the queue: open runs times the mean node's time of their experiments' latest runs, or else of
finished runs of the same shapes, divided by the number of present workers. An experiment whose next run meets no
present worker that could execute it has no estimate, and others do not wait for it.

The cost of an estimate grows with the queue, not with the number of ended runs. Means are cached between estimates,
and an estimate until a run or a worker changes.
"""

from __future__ import annotations

import functools
import operator
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, ScalarSelect, Select, case, func, select
from sqlalchemy.orm import Session

from taskloom.contract.experiments import EtaBasis
from taskloom.server.db import db_now
from taskloom.server.queue.attempts.node_time import COLUMNS
from taskloom.server.queue.experiments import durations
from taskloom.server.queue.runs import queue
from taskloom.server.queue.runs.queue import Queued, Wish
from taskloom.server.queue.tables.experiments import Experiment
from taskloom.server.queue.tables.runs import Run, RunEvent
from taskloom.server.queue.tables.states import OPEN
from taskloom.server.queue.tables.workers import Worker
from taskloom.server.settings import Settings

OF_EXPERIMENT = 30  # latest runs of an experiment, whose mean is used
AT_ONCE = 500  # experiments per statement
LATEST = 200  # latest ended runs, whose mean is used for experiments without an ended run
KEPT_S = 15.0  # most seconds for which an estimate is kept, since the remaining time of workers decreases


@dataclass(frozen=True)
class Eta:
    """Seconds until each active experiment has ended, and until the present workers have executed all that they can.
    None: unknown, or no present worker can execute its next run. guessed: experiments whose estimate rests on runs of
    other shapes."""

    by_experiment: dict[int, float | None]
    total_s: float | None
    guessed: frozenset[int] = frozenset()

    @property
    def total_basis(self) -> EtaBasis | None:
        return None if self.total_s is None else "guess" if self.guessed else "finished-runs"

    def of(self, experiment_id: int) -> dict[str, Any]:
        """Fields of an experiment's summary."""
        eta_s = self.by_experiment.get(experiment_id)
        known: EtaBasis = "guess" if experiment_id in self.guessed else "finished-runs"
        return {"eta_s": eta_s, "eta_basis": None if eta_s is None else known}


@dataclass(frozen=True)
class _Open:
    """Open runs of an experiment: their number, the first id, and the first id of those that wait, if any."""

    runs: int
    first: int
    waits: int | None


@dataclass(frozen=True)
class _Active:
    """An experiment with open runs. wish: requirements of its next run; None: all have been claimed. mean_s: mean time
    of its latest runs; None: unknown."""

    open: _Open
    priority: int
    wish: Wish | None
    mean_s: float | None


class Etas:
    """Estimates, for any thread. An experiment's mean is read again when its open runs have changed."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._active: Mapping[int, _Active] = {}  # of the last estimate
        self._kept: tuple[tuple[Any, ...], float, Eta] | None = None  # its mark, until when it is kept, and itself

    def estimate(self, session: Session) -> Eta:
        """Estimate with experiments in the order of priority and age, and one run per worker at a time."""
        here, kept, at = mark(session, self._settings), self._kept, time.monotonic()
        if kept is not None and kept[0] == here and at < kept[1]:
            return kept[2]
        found = self._estimate(session)
        self._kept = here, at + KEPT_S, found
        return found

    def _estimate(self, session: Session) -> Eta:
        unfinished = select(Experiment.id).where(Experiment.finished_at.is_(None))
        active = self._read(session, _open(session, unfinished))
        usual_s = _usual_s(session)
        workers = queue.offered(session, self._settings)
        fits = functools.cache(functools.partial(queue.fits, offers=workers))
        found: dict[int, float | None] = dict.fromkeys(session.scalars(unfinished))
        can_run = {at: each for at, each in active.items() if workers and (each.wish is None or fits(each.wish))}
        total_s: float | None = 0.0 if workers and (can_run or not active) else None
        guessed: set[int] = set()
        for experiment_id, each in sorted(can_run.items(), key=lambda item: (-item[1].priority, item[1].open.first)):
            each_s = each.mean_s or usual_s
            total_s = None if total_s is None or each_s is None else total_s + each.open.runs * each_s / len(workers)
            found[experiment_id] = total_s
            if guessed or each.mean_s is None:
                guessed.add(experiment_id)
        return Eta(found, total_s, frozenset(guessed))

    def _read(self, session: Session, opened: Mapping[int, _Open]) -> Mapping[int, _Active]:
        active = {each: known for each, known in self._active.items() if known.open == opened.get(each)}
        changed = [each for each in opened if each not in active]
        priority = func.coalesce(Experiment.request["priority"].as_integer(), 0)
        for first in range(0, len(changed), AT_ONCE):
            some = changed[first : first + AT_ONCE]
            waits = [opened[each].waits for each in some if opened[each].waits is not None]
            following = select(Run.id, Run.experiment_id, Run.block, Run.timeout_s).where(Run.id.in_(waits))
            runs = [Queued(*row) for row in session.execute(following)]
            needed = queue.wishes(session, runs)
            wishes = {run.experiment_id: needed[run.experiment_id, run.block] for run in runs}
            query = select(Experiment.id, priority, _mean_s()).where(Experiment.id.in_(some))
            for experiment_id, rank, mean_s in session.execute(query):
                if mean_s is None:
                    mean_s = _mean_of_shapes_s(session, experiment_id)
                active[experiment_id] = _Active(opened[experiment_id], rank, wishes.get(experiment_id), mean_s)
        self._active = active
        return active


def mark(session: Session, settings: Settings) -> tuple[Any, ...]:
    """A value that changes with runs and workers, read from the end of an index and a small table."""
    events = select(func.max(RunEvent.id)).scalar_subquery()
    present = Worker.seen_at > db_now() - settings.block_release_s
    known = select(
        events, func.count(), func.max(Worker.registered_at), func.max(Worker.left_at), func.max(Worker.removed_at),
        func.count().filter(present), func.count().filter(Worker.measuring_peaks.is_(True)),
    )  # fmt: skip
    return tuple(session.execute(known.select_from(Worker)).one())


def _open(session: Session, experiments: Select[int]) -> dict[int, _Open]:
    """The open runs of each of these experiments that has any."""
    counts = select(Run.experiment_id, Run.state, func.count(), func.min(Run.id))
    counts = counts.where(Run.experiment_id.in_(experiments), Run.state.in_(OPEN))
    by_experiment: dict[int, dict[str, tuple[int, int]]] = {}
    for experiment_id, state, count, first in session.execute(counts.group_by(Run.experiment_id, Run.state)):
        by_experiment.setdefault(experiment_id, {})[state] = count, first
    return {
        experiment_id: _Open(
            runs=sum(count for count, _ in by_state.values()),
            first=min(first for _, first in by_state.values()),
            waits=by_state["queued"][1] if "queued" in by_state else None,
        )
        for experiment_id, by_state in by_experiment.items()
    }


def _mean_of_shapes_s(session: Session, experiment_id: int) -> float | None:
    """Mean time of finished runs like an experiment's open ones. None: one of their shapes has not run."""
    alike = select(Run.shape, Run.spec["steps"].as_integer()).distinct()
    alike = alike.where(Run.experiment_id == experiment_id, Run.state.in_(OPEN)).limit(AT_ONCE)
    return durations.mean_s(session, [(shape, steps) for shape, steps in session.execute(alike)])


def _took_s() -> ColumnElement[float | None]:
    """SQL: a run's part of the node's time, without the wait for it. Between start and end where that is unknown."""
    parts = [func.coalesce(column, 0.0) for name, column in COLUMNS.items() if name != durations.WAITING]
    return case((Run.node_timed_s.is_not(None), functools.reduce(operator.add, parts)),
                else_=Run.finished_at - Run.started_at)  # fmt: skip


def _mean_s() -> ScalarSelect[float | None]:
    """SQL: mean time of an experiment's latest runs."""
    took = select(_took_s().label("took_s"))
    took = took.where(Run.experiment_id == Experiment.id, Run.state == "succeeded")
    latest = took.order_by(Run.id.desc()).limit(OF_EXPERIMENT).correlate(Experiment).subquery()
    return select(func.avg(latest.c.took_s)).scalar_subquery()


def _usual_s(session: Session) -> float | None:
    """Mean time of the latest runs. The query has no condition on the state, since SQLite would search by state."""
    ended = select(Run.state, _took_s()).where(Run.finished_at.is_not(None))
    latest = session.execute(ended.order_by(Run.finished_at.desc(), Run.id.desc()).limit(LATEST))
    took = [took_s for state, took_s in latest if state == "succeeded" and took_s]
    return sum(took) / len(took) if took else None

