"""Series and their points, from columns of runs; no payload is read, and a digest only for the latency of inference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from gpt2core.spec.phases import PHASES
from taskloom.analysis.history import SeriesChanges
from taskloom.analysis.naming import configuration
from taskloom.contract.analysis import AlertState, AlertSummary
from taskloom.contract.series import SeriesPage, SeriesRow, SeriesRun, SeriesRunPage
from taskloom.server.alerts import raised, thresholds
from taskloom.server.alerts.models import Alert, Threshold
from taskloom.server.db import Database, existing, utc
from taskloom.server.queue.attempts import commits
from taskloom.server.queue.tables.runs import Run, Series
from taskloom.server.read.analysis import analyses
from taskloom.server.read.history.fields import COLUMNS, SERIES_FIELDS
from taskloom.server.read.lists import fields, keyset
from taskloom.server.read.lists.grammar import Tree
from taskloom.server.read.lists.keyset import Condition, Look, Order
from taskloom.server.read.lists.parameters import BOUNDS, Period
from taskloom.server.read.lists.sorting import Sorts, sortable
from taskloom.server.read.measured import FIRST, OPS, machine, quantiles

Sort = str  # a name of SORTS; with - before it: descending
SORTS = Sorts(sortable([*SERIES_FIELDS.values(), *COLUMNS]), ("id", "last_at", "runs"), "filter, node, alert, run_id")
PointSort = Literal["finished_at", "-finished_at"]
LATEST = 500  # runs per series that are searched for changes
RECENT = 40  # latest runs in a sparkline
ALERTS = 5


@dataclass(frozen=True)
class Filters:
    """Filter of series. where: an expression. threshold: with one, or without."""

    node: str | None = None
    where: Tree | None = None
    alerts: Sequence[AlertState] = ()
    run_id: int | None = None
    threshold: bool | None = None

    def conditions(self) -> list[Condition]:
        given: list[Condition] = []
        if self.node is not None:
            given.append(Series.node == self.node)
        if self.alerts:
            slower = select(Run.series_id).join(Alert, Alert.run_id == Run.id).where(Alert.state.in_(self.alerts))
            given.append(Series.id.in_(slower))
        if self.run_id is not None:
            given.append(Series.id.in_(select(Run.series_id).where(Run.id == self.run_id)))
        if self.threshold is not None:
            has = Series.id.in_(select(Threshold.series_id))
            given.append(has if self.threshold else ~has)
        if self.where is not None:
            given.append(fields.condition(self.where, SERIES_FIELDS))
        return given


def page(
    database: Database, filters: Filters, sort: Sort, with_total: bool, cursor: str | None, limit: int
) -> SeriesPage:
    """Raises BadCursor or InvalidRequest."""
    with database.read(snapshot=True) as session:
        ids, next_cursor = keyset.page(session, look(session, filters, sort), cursor, limit)
        found = {row.id: row for row in session.scalars(select(Series).where(Series.id.in_(ids)))}
        slower = _alerts(session, ids)
        items = [_row(session, found[series_id], slower.get(series_id, [])) for series_id in ids]
        total = None
        if with_total:
            counted = select(func.count()).select_from(Series).where(*filters.conditions())
            total = session.execute(counted).scalar_one()
    return SeriesPage(items=items, next_cursor=next_cursor, total=total)


def look(session: Session, filters: Filters, sort: Sort) -> Look:
    """Query for these series. Raises InvalidRequest if nothing sorts so many."""
    name = sort.removeprefix("-")
    if name not in SORTS.indexed:
        return SORTS.few(session, Look(Series.id, Order(), [filters.conditions()]), sort)
    order = Order(None, sort.startswith("-")) if name == "id" else SORTS.order(sort, by_index=True)
    return Look(Series.id, order, where=filters.conditions())


def show(database: Database, series_id: int) -> SeriesRow:
    """Raises NotFound."""
    with database.read(snapshot=True) as session:
        return _row(session, existing(session, Series, series_id), _alerts(session, [series_id]).get(series_id, []))


def _row(session: Session, series: Series, slower: Sequence[AlertSummary]) -> SeriesRow:
    of_it = Run.series_id == series.id, Run.finished_at.is_not(None)
    first_at = session.scalar(select(func.min(Run.finished_at)).where(*of_it))
    newest = select(Run.median_step_s).where(*of_it).order_by(Run.finished_at.desc(), Run.id.desc()).limit(RECENT)
    steps_s = [step_s for step_s in session.scalars(newest) if step_s is not None]
    return SeriesRow(
        id=series.id,
        name=configuration(series.config),
        config=series.config,
        machine=series.machine,
        node=series.node,
        runs=series.runs,
        first_at=None if first_at is None else utc(first_at),
        last_at=utc(series.last_at),
        median_step_s=steps_s[0] if steps_s else None,
        recent_s=steps_s[::-1],
        alerts=list(slower[:ALERTS]),
        threshold=thresholds.of_series(session, series.id),
    )


def _alerts(session: Session, ids: Sequence[int]) -> dict[int, list[AlertSummary]]:
    """By series, newest first."""
    of_them = select(Alert, Run.series_id).join(Run, Run.id == Alert.run_id).where(Run.series_id.in_(ids))
    rows = session.execute(of_them.order_by(Alert.id.desc())).all()
    found: dict[int, list[AlertSummary]] = {}
    items = raised.summaries(session, [alert for alert, _ in rows])
    for item, (_, series_id) in zip(items, rows, strict=True):
        found.setdefault(series_id or 0, []).append(item)
    return found


POINT = (
    Run.id, Run.experiment_id, Run.finished_at, Run.median_step_s, Run.tokens_per_s, Run.phase_s, Run.final_loss,
    Run.flagged_steps, Run.environment_sha256, Run.node, *commits.TRAINER,
)  # fmt: skip


def points(
    database: Database,
    series_id: int,
    period: Period,
    sort: PointSort,
    cursor: str | None,
    limit: int,
    op: str | None = None,
) -> SeriesRunPage:
    """op: an operation, whose time each point then has. Raises NotFound or BadCursor."""
    given = period.conditions(Run)
    within = [given.pop(name) for name in BOUNDS["finished_at"] if name in given]
    order = Order(Run.finished_at, sort.startswith("-"))
    look = Look(Run.id, order, [(Run.series_id == series_id,)], within, where=[*given.values()])
    with database.read(snapshot=True) as session:
        infers = existing(session, Series, series_id).config.get("mode") == "infer"
        ids, next_cursor = keyset.page(session, look, cursor, limit)
        found = {row.id: row for row in session.execute(select(*POINT).where(Run.id.in_(ids)))}
        states = select(Alert.run_id, Alert.state).where(Alert.run_id.in_(ids), Alert.kind == "change")
        slower = {row.run_id: row.state for row in session.execute(states)}
        latency = quantiles(session, ids if infers else [])
        named = commits.of_experiments(session, {row.experiment_id for row in found.values()})
        more = machine(session, ids, op)
    items = [
        _point(
            found[run_id], slower.get(run_id), latency.get(run_id, {}),
            named[found[run_id].experiment_id] | more.get(run_id, {}),
        )
        for run_id in ids
    ]  # fmt: skip
    newest = more.get(max(ids, default=0), {})
    return SeriesRunPage(series_id=series_id, items=items, next_cursor=next_cursor, ops=newest.get(OPS, []))


def _point(run: Any, alert: str | None, latency: Mapping[str, Any], more: Mapping[str, Any]) -> SeriesRun:
    return SeriesRun(
        run_id=run.id,
        experiment_id=run.experiment_id,
        finished_at=None if run.finished_at is None else utc(run.finished_at),
        median_step_s=run.median_step_s,
        tokens_per_s=run.tokens_per_s,
        **{f"{phase}_s": (run.phase_s or {}).get(phase) for phase in PHASES},
        final_loss=run.final_loss,
        latency_p99_s=latency.get("p99_s"),
        time_to_first_token_s=latency.get(FIRST),
        flagged_steps=run.flagged_steps,
        environment_sha256=run.environment_sha256,
        alert=alert,
        node=run.node,
        **commits.of_trainer(run),
        **{name: value for name, value in more.items() if name != OPS},
    )


def changes(
    database: Database, series_id: int, noise_floor: float, limit: int, commits_url: str = ""
) -> SeriesChanges:
    """Raises NotFound."""
    with database.read() as session:
        existing(session, Series, series_id)
    found = analyses.history(database, noise_floor, limit, Run.series_id == series_id, commits_url)
    points = [point for one in found for point in one.points]
    return SeriesChanges(
        series_id=series_id,
        runs=len(points),
        over_canary=any(one.over_canary for one in found),
        threshold=next((one.threshold for one in found), None),
        changes=[change for one in found for change in one.changes],
        alerts=[alert for one in found for alert in one.alerts],
    )
