"""Experiments, filtered and sorted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from sqlalchemy import func, or_, select
from sqlalchemy.orm import Session

from taskloom.contract.experiments import ExperimentDetail, ExperimentPage, ExperimentSummary, Verdict
from taskloom.server.db import Database
from taskloom.server.queue.experiments import details
from taskloom.server.queue.tables.experiments import Experiment, ExperimentTag, RequiredLabel
from taskloom.server.read.experiments import fields
from taskloom.server.read.experiments.eta import Eta, Etas
from taskloom.server.read.lists import keyset
from taskloom.server.read.lists.commits import ANY, CommitFilter
from taskloom.server.read.lists.grammar import Tree
from taskloom.server.read.lists.keyset import Condition, Look, Order
from taskloom.server.read.lists.parameters import BOUNDS, EVER, Period
from taskloom.server.read.lists.sorting import Sorts, sortable

OF_RUNS_WINDOW = 100  # experiments a page whose runs are searched
WINDOWS = 20  # that are searched for the experiment of a badge
State = Literal["active", "finished", "cancelled"]
Sort = str  # a name of SORTS; with - before it: descending
SORTS = Sorts(
    sortable(field for field in fields.OWN if field.name != "notes"),  # notes are too long for a cursor
    ("id", "name", "submitter", "group", "runs", "created_at", "finished_at"),
    "since",
)
IN_STATE: dict[State, Condition] = {
    "active": Experiment.finished_at.is_(None),
    "finished": Experiment.finished_at.is_not(None) & Experiment.cancelled_at.is_(None),
    "cancelled": Experiment.finished_at.is_not(None) & Experiment.cancelled_at.is_not(None),
}


@dataclass(frozen=True)
class Filters:
    """Filter of experiments. labels, tags: all must match. where: an expression."""

    states: Sequence[State] = ()
    name: str | None = None
    submitter: str | None = None
    group: str | None = None
    labels: Sequence[str] = ()
    tags: Sequence[str] = ()
    where: Tree | None = None
    period: Period = EVER
    commit: CommitFilter = ANY

    def conditions(self) -> dict[str, Condition]:
        """Each filter that is set, by its name."""
        given: dict[str, Condition] = {}
        if self.states:
            given["states"] = or_(*(IN_STATE[state] for state in self.states))
        if self.name is not None:
            given["name"] = Experiment.name.icontains(self.name, autoescape=True)
        if self.submitter is not None:
            given["submitter"] = Experiment.owner == self.submitter
        if self.group is not None:
            given["group"] = Experiment.group == self.group
        given |= self.period.conditions(Experiment)
        given |= self.commit.conditions()
        for label in self.labels:
            given[f"label {label}"] = Experiment.id.in_(
                select(RequiredLabel.experiment_id).where(RequiredLabel.label == label)
            )
        for tag in self.tags:
            given[f"tag {tag}"] = Experiment.id.in_(
                select(ExperimentTag.experiment_id).where(ExperimentTag.tag == tag)
            )
        if self.where is not None:
            given["where"] = fields.condition(self.where)
        return given


def page(
    database: Database,
    etas: Etas,
    filters: Filters,
    sort: Sort,
    with_total: bool,
    cursor: str | None,
    limit: int,
) -> ExperimentPage:
    """Raises BadCursor or InvalidRequest."""
    with database.read(snapshot=True) as session:
        ids, next_cursor = keyset.page(session, look(session, filters, sort), cursor, limit)
        rows = {row.id: row for row in session.scalars(select(Experiment).where(Experiment.id.in_(ids)))}
        items = details.summaries(session, [rows[experiment_id] for experiment_id in ids])
        if any(item.state == "active" for item in items):
            left = etas.estimate(session)
            items = [_with_eta(item, left) for item in items]
        total = None
        if with_total and not fields.asks_runs(filters.where):
            conditions = filters.conditions().values()
            total = session.execute(select(func.count()).select_from(Experiment).where(*conditions)).scalar_one()
    return ExperimentPage(items=items, next_cursor=next_cursor, total=total)


def newest_verdict(database: Database, filters: Filters) -> Verdict | None:
    """Verdict of the newest ended experiment; None if there is none, or its verdict is not computed yet."""
    ended = replace(filters, states=filters.states or ("finished",))
    cursor: str | None = None
    with database.read(snapshot=True) as session:
        for _ in range(WINDOWS):
            ids, cursor = keyset.page(session, look(session, ended, "-id"), cursor, 1)
            rows = list(session.scalars(select(Experiment).where(Experiment.id.in_(ids))))
            if rows or cursor is None:
                return next((item.verdict for item in details.summaries(session, rows)), None)
    return None


def show(database: Database, etas: Etas, experiment_id: int) -> ExperimentDetail:
    """Raises NotFound."""
    detail = details.show(database, experiment_id)
    if detail.state != "active":
        return detail
    with database.read(snapshot=True) as session:
        return detail.model_copy(update=etas.estimate(session).of(experiment_id))


def look(session: Session, filters: Filters, sort: Sort) -> Look:
    """Query for these experiments. Raises InvalidRequest if no index sorts them and they are not few."""
    given = filters.conditions()
    window = OF_RUNS_WINDOW if fields.asks_runs(filters.where) else None
    name, descending = sort.removeprefix("-"), sort.startswith("-")
    if name not in SORTS.indexed:
        return SORTS.few(session, look(session, filters, "id"), sort)
    if name == "id" and filters.period.since is not None:  # ids follow the order of submission
        name = "created_at"
    if name == "id":
        return Look(Experiment.id, Order(None, descending), [()], where=[*given.values()], window=window)
    order = replace(SORTS.order(name, by_index=True), descending=descending)
    within = [given.pop(each) for each in BOUNDS.get(name, ()) if each in given]
    since = filters.period.since if name == "finished_at" else None  # no experiment ends before its submission
    above = [] if since is None else [Experiment.finished_at >= since]
    return Look(Experiment.id, order, [()], within, above, [*given.values()], window)


def _with_eta(item: ExperimentSummary, left: Eta) -> ExperimentSummary:
    return item.model_copy(update=left.of(item.id)) if item.state == "active" else item
