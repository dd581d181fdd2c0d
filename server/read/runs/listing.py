"""Runs, filtered and sorted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Text, cast, func, select
from sqlalchemy.orm import Session

from taskloom.contract.runs import RunError, RunPage, RunRow, RunState
from taskloom.server.db import Database
from taskloom.server.queue.attempts import commits
from taskloom.server.queue.runs.details import SUMMARY, summary
from taskloom.server.queue.tables.experiments import Experiment, RequiredLabel
from taskloom.server.queue.tables.runs import Run, is_flagged
from taskloom.server.read.lists import fields, keyset
from taskloom.server.read.lists.commits import ANY, CommitFilter
from taskloom.server.read.lists.fields import Field
from taskloom.server.read.lists.grammar import Tree
from taskloom.server.read.lists.keyset import Condition, Look, Order
from taskloom.server.read.lists.parameters import BOUNDS, EVER, Period
from taskloom.server.read.lists.sorting import Sorts, sortable
from taskloom.server.read.runs.fields import RUN_FIELDS

Sort = str  # a name of SORTS; with - before it: descending
# Columns in which many runs are equal. SQLite cannot end a search between equal values, so no filter is tested there.
COARSE = ("experiment_id", "state", "flagged_steps", "node")
VARIANT = Field("variant", "text", "values of the axes, as JSON", cast(Run.variant, Text), nullable=False)
SORTS = Sorts(
    sortable([*RUN_FIELDS.values(), VARIANT]),
    ("id", "experiment_id", "state", "median_step_s", "tokens_per_s", "final_loss", "flagged_steps", "node",
     "duration_s", "created_at", "started_at", "finished_at"),
    "experiment_id, run, since, state, node",
)  # fmt: skip


@dataclass(frozen=True)
class Filters:
    """Filter of runs. labels: all must match. where: an expression."""

    experiment_id: int | None = None
    run_ids: Sequence[int] = ()
    states: Sequence[RunState] = ()
    node: str | None = None
    labels: Sequence[str] = ()
    where: Tree | None = None
    flagged: bool | None = None
    period: Period = EVER
    commit: CommitFilter = ANY
    trainer: CommitFilter = ANY

    def conditions(self) -> dict[str, Condition]:
        """Each filter that is set, by its name."""
        given: dict[str, Condition] = {}
        if self.experiment_id is not None:
            given["experiment_id"] = Run.experiment_id == self.experiment_id
        if self.run_ids:
            given["run"] = Run.id.in_(self.run_ids)
        if self.states:
            given["states"] = Run.state.in_(self.states)
        if self.node is not None:
            given["node"] = Run.node == self.node
        if self.flagged is not None:
            given["flagged"] = is_flagged() if self.flagged else Run.flagged_steps == 0
        given |= self.period.conditions(Run)
        given |= self.trainer.conditions()
        for name, condition in self.commit.conditions().items():
            given[name] = Run.experiment_id.in_(select(Experiment.id).where(condition))
        for label in self.labels:
            asking = select(RequiredLabel.experiment_id).where(RequiredLabel.label == label)
            given[f"label {label}"] = Run.experiment_id.in_(asking)
        if self.where is not None:
            given["where"] = fields.condition(self.where, RUN_FIELDS)
        return given


def page(database: Database, filters: Filters, sort: Sort, with_total: bool, cursor: str | None, limit: int) -> RunPage:
    """Raises BadCursor or InvalidRequest."""
    with database.read(snapshot=True) as session:
        ids, next_cursor = keyset.page(session, look(session, filters, sort), cursor, limit)
        rows = {row.id: row for row in session.execute(select(*SUMMARY).where(Run.id.in_(ids)))}
        named = commits.of_experiments(session, {row.experiment_id for row in rows.values()})
        total = _total(session, filters) if with_total else None
    items = [_row(rows[run_id], named[rows[run_id].experiment_id]) for run_id in ids]
    return RunPage(items=items, next_cursor=next_cursor, total=total)


def _row(run: Any, named: Mapping[str, Any]) -> RunRow:
    error = None
    if run.error is not None:
        error = RunError(slug=str(run.error.get("slug", "")), detail=str(run.error.get("detail", ""))[:500])
    return RunRow(**summary(run, named), error=error)


def look(session: Session, filters: Filters, sort: Sort) -> Look:
    """Query for these runs: one filter along an index, the others tested row by row; few runs are read and then sorted.
    Raises InvalidRequest if no index sorts them and they are not few."""
    given = filters.conditions()
    name, descending = sort.removeprefix("-"), sort.startswith("-")
    if name == "id":
        return _in_order(filters, given, descending)
    if filters.experiment_id is not None:  # sorting its runs is faster than reading an index of all runs
        every = given.pop("experiment_id")
        return Look(Run.id, SORTS.order(sort), [(every,)], where=[*given.values()])
    if filters.run_ids or name not in SORTS.indexed or (given and name in COARSE):
        return SORTS.few(session, _in_order(filters, given, descending=False), sort)
    return _along(filters, given, name, SORTS.order(sort, by_index=True))


def _along(filters: Filters, given: dict[str, Condition], name: str, order: Order) -> Look:
    """Query for runs along the index of a column."""
    within = [given.pop(each) for each in BOUNDS.get(name, ()) if each in given]
    since = filters.period.since if name in ("started_at", "finished_at") else None  # not before submission
    above = [] if since is None or order.column is None else [order.column >= since]
    return Look(Run.id, order, [()], within, above, [*given.values()])


def _in_order(filters: Filters, given: dict[str, Condition], descending: bool) -> Look:
    """Query for runs in the order of their ids."""
    order = Order(None, descending)
    leading: list[Sequence[Condition]] = [()]
    if filters.experiment_id is not None:
        every = given.pop("experiment_id")
        states = given.pop("states", None)
        leading = [(every,)]
        if states is not None:
            leading = [(every, Run.state == state) for state in dict.fromkeys(filters.states)]
    elif filters.run_ids:
        leading = [(given.pop("run"),)]
    elif filters.period.since is not None:  # ids follow the order of submission
        return _along(filters, given, "created_at", Order(Run.created_at, descending))
    elif "states" in given:
        del given["states"]
        leading = [(Run.state == state,) for state in dict.fromkeys(filters.states)]
    elif "node" in given:
        leading = [(given.pop("node"),)]
    elif filters.flagged:
        leading = [(given.pop("flagged"),)]
    return Look(Run.id, order, leading, where=[*given.values()])


def _total(session: Session, filters: Filters) -> int | None:
    """Number of runs. None: no index covers the filters, so every run would have to be read."""
    conditions = filters.conditions()
    other = filters.where or filters.labels or filters.commit.conditions() or filters.trainer.conditions()
    if filters.experiment_id is None and (other or len(conditions) > 1):
        return None
    return session.execute(select(func.count()).select_from(Run).where(*conditions.values())).scalar_one()
