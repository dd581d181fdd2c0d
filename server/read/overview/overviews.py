"""The overview, computed at most once per interval for all callers."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from pathlib import Path
from typing import Any

from sqlalchemy import case, func, select
from sqlalchemy.orm import Session

from taskloom.contract.overview import (
    AlertCounts,
    EndedRuns,
    Overview,
    RunCounts,
    Waiting,
    WeekOfVerdicts,
    WorkerCounts,
)
from taskloom.contract.runs import WaitingReason
from taskloom.server.alerts import raised
from taskloom.server.alerts.models import Alert
from taskloom.server.db import Database, now, utc
from taskloom.server.queue.experiments import details
from taskloom.server.queue.runs.queue import Outlook, Queued, Wish
from taskloom.server.queue.tables.experiments import Experiment
from taskloom.server.queue.tables.runs import Run, is_queued
from taskloom.server.queue.workers import registry
from taskloom.server.read.experiments.eta import Eta, Etas, mark
from taskloom.server.settings import Settings

HOUR_S, DAY_S = 3600.0, 86400.0
WEEK_S, MONDAY_S = 7 * DAY_S, 4 * DAY_S  # 1970 began on a Thursday
AT_LATEST_S = 15.0  # age at which it is computed again without a change, since workers become silent
ACTIVE, LATEST, WEEKS, ALERTS, FIRST_QUEUED = 20, 10, 8, 5, 500
OPEN = ("queued", "leased", "running", "quarantined")
COSTS = 5  # latest looks; the cheapest counts, since waiting for other threads or the database's other users is no work
WAITED = Path("/proc/thread-self/schedstat")  # second number: nanoseconds that the thread was ready and had no core


class Pace:
    """When to look again: after changes for at most a tenth of the time, and otherwise for at most a five-hundredth."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._costs_s: deque[float] = deque(maxlen=COSTS)
        self.next_at = self.at_latest = 0.0

    def add_read(self, at: float) -> None:
        """The database was read for changes at this time (`time.monotonic`)."""
        self.next_at = at + self._every_s

    def looked(self, at: float, cost_s: float) -> None:
        """A look began at this time and took that long."""
        self._costs_s.append(cost_s)
        least_s = min(self._costs_s)
        self.next_at = at + max(self._every_s, 10 * least_s)
        self.at_latest = at + max(AT_LATEST_S, 500 * least_s)


def core_clock_s() -> float:
    """A clock of the calling thread that stands still while the thread waits for a core."""
    try:
        waited_ns = int(WAITED.read_bytes().split()[1])
    except (OSError, ValueError, IndexError):  # hidden, or imitated by a sandbox
        waited_ns = 0
    return time.monotonic() - 1e-9 * waited_ns


class Overviews:
    """Cache of the overview, computed again at a `Pace`."""

    def __init__(self, database: Database, settings: Settings, etas: Etas) -> None:
        self._database, self._settings, self._etas = database, settings, etas
        # Clock for the cost of computing: SQLite works on the calling thread, PostgreSQL in another process.
        self._clock_s = time.thread_time if database.is_sqlite else core_clock_s
        self._turn = threading.Lock()
        self._kept: Overview | None = None
        self._mark: tuple[Any, ...] = ()  # the mark when it was computed
        self._pace = Pace(settings.events_every_s)

    def get(self) -> Overview:
        """The overview. May be called on any thread; concurrent callers wait for one computation."""
        return self.latest()[0]

    def latest(self) -> tuple[Overview, float]:
        """The overview, and for how many more seconds it is cached, whatever changes; 0.0: it is current."""
        with self._turn:
            begun, before_s = time.monotonic(), self._clock_s()
            if self._kept is not None and begun < self._pace.next_at:
                return self._kept, self._pace.next_at - begun
            here = _mark(self._database, self._settings)
            if self._kept is None or here != self._mark or begun >= self._pace.at_latest:
                self._kept, self._mark = look(self._database, self._settings, self._etas), here
                self._pace.looked(begun, self._clock_s() - before_s)
            else:
                self._pace.add_read(begun)
            return self._kept, 0.0


def _mark(database: Database, settings: Settings) -> tuple[Any, ...]:
    """A value that changes with runs, workers or alerts."""
    with database.read() as session:
        raised = select(func.count(), func.max(Alert.changed_at)).select_from(Alert)
        return (*mark(session, settings), *session.execute(raised).one())


def look(database: Database, settings: Settings, etas: Etas) -> Overview:
    """The current overview."""
    with database.read(snapshot=True) as session:
        at = now(session)
        left = etas.estimate(session)
        active, count = _active(session, left)
        latest = select(Experiment).where(Experiment.finished_at.is_not(None))
        latest = latest.order_by(Experiment.finished_at.desc(), Experiment.id.desc()).limit(LATEST)
        by_state = dict.fromkeys(AlertCounts.model_fields, 0)
        by_state |= {row[0]: row[1] for row in session.execute(select(Alert.state, func.count()).group_by(Alert.state))}
        ended = list(session.scalars(latest))
        summaries = details.summaries(session, [*active, *ended])
        newest = select(Alert).where(Alert.state.not_in(["dismissed", "within"]))
        newest = newest.order_by(Alert.id.desc()).limit(ALERTS)
        return Overview(
            at=utc(at),
            runs=_runs(session, at),
            runs_per_h=sum(_ended(session, at - HOUR_S).values()),
            eta_s=left.total_s,
            eta_basis=left.total_basis,
            workers=WorkerCounts.of(registry.count_by_state(session, settings)),
            active_experiments=count,
            experiments=[
                item.model_copy(update=left.of(item.id)) for item in summaries[: len(active)]
            ],
            latest=summaries[len(active) :],
            verdicts=_verdicts(session, at),
            alerts=AlertCounts(**by_state),
            newest_alerts=raised.summaries(session, session.scalars(newest).all()),
            waiting=_waiting(session, settings),
        )


def _active(session: Session, left: Eta) -> tuple[list[Experiment], int]:
    """The first active experiments in queue order, and their number."""
    queue = [experiment_id for experiment_id, eta_s in left.by_experiment.items() if eta_s is not None]
    ids = sorted(queue, key=lambda each: left.by_experiment[each] or 0.0)
    ids += sorted(left.by_experiment.keys() - set(queue))
    found = {row.id: row for row in session.scalars(select(Experiment).where(Experiment.id.in_(ids[:ACTIVE])))}
    return [found[experiment_id] for experiment_id in ids[:ACTIVE]], len(ids)


def _runs(session: Session, at: float) -> RunCounts:
    counts = select(Run.state, func.count()).where(Run.state.in_(OPEN)).group_by(Run.state)
    found = dict.fromkeys(OPEN, 0) | {row[0]: row[1] for row in session.execute(counts)}
    return RunCounts(**found, ended_24h=EndedRuns(**_ended(session, at - DAY_S)))


def _ended(session: Session, since: float) -> dict[str, int]:
    """Number of runs that have ended since, by state."""
    state = Run.state.concat("")  # without this, SQLite would scan the index of all states
    ended = select(state, func.count()).where(Run.finished_at >= since).group_by(state)
    return dict.fromkeys(EndedRuns.model_fields, 0) | {row[0]: row[1] for row in session.execute(ended)}


def _verdicts(session: Session, at: float) -> list[WeekOfVerdicts]:
    """Number of experiments with each verdict by the week of their end, the newest first."""
    monday = at - (at - MONDAY_S) % WEEK_S
    begins = [monday - i * WEEK_S for i in range(WEEKS)]
    began = case(*((Experiment.finished_at >= begin, begin) for begin in begins))
    verdict = Experiment.verdict["verdict"].as_string()
    counts = select(began, verdict, func.count()).where(Experiment.finished_at >= begins[-1], verdict != "none")
    found: dict[float, dict[str, int]] = {}
    for begin, word, count in session.execute(counts.group_by(began, verdict)):
        found.setdefault(begin, {})[word] = count
    return [WeekOfVerdicts(began_at=utc(begin), by_verdict=found[begin]) for begin in sorted(found, reverse=True)]


def _waiting(session: Session, settings: Settings) -> list[Waiting]:
    """Reasons why the first queued runs wait, the most frequent first."""
    first = select(Run.id, Run.experiment_id, Run.block, Run.timeout_s).where(is_queued())
    first = first.order_by(Run.rank, Run.id).limit(FIRST_QUEUED)
    runs = [Queued(*row) for row in session.execute(first)]
    outlook = Outlook(session, settings, runs)
    alike: dict[tuple[Wish, bool], list[int]] = {}  # places of runs with one reason
    for before, run in enumerate(runs):
        alike.setdefault((outlook.wish(run), before > 0), []).append(before)
    texts: dict[WaitingReason, str] = {}
    counts: Counter[WaitingReason] = Counter()
    for (wish, _), places in alike.items():
        reason, text = outlook.waiting_for(wish, places[0])
        texts.setdefault(reason, text)
        counts[reason] += len(places)
    return [Waiting(reason=reason, waiting_for=texts[reason], runs=runs) for reason, runs in counts.most_common()]
