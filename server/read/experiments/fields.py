"""The names that filters of experiments know: their own, and those of runs, which one of its runs must satisfy."""

from __future__ import annotations

from typing import get_args

from sqlalchemy import ColumnElement, and_, case, exists, not_, or_, select

from taskloom.contract.experiments import Verdict
from taskloom.server.queue.attempts import commits
from taskloom.server.queue.tables.experiments import Experiment, ExperimentTag
from taskloom.server.queue.tables.runs import Run
from taskloom.server.read.lists import fields as of_lists
from taskloom.server.read.lists.commits import names
from taskloom.server.read.lists.fields import Field, fields, names_of
from taskloom.server.read.lists.grammar import Comparison, Either, Every, Not, Tree
from taskloom.server.read.runs.fields import MEASURED, SETTINGS, TAGS

STATES = ("active", "finished", "cancelled")


def _with_tag(condition: ColumnElement[bool]) -> ColumnElement[bool]:
    return Experiment.id.in_(select(ExperimentTag.experiment_id).where(condition))


STATE = case(
    (Experiment.finished_at.is_(None), STATES[0]), (Experiment.cancelled_at.is_(None), STATES[1]), else_=STATES[2]
)
VERDICTS = get_args(Verdict.model_fields["verdict"].annotation)
OWN = (
    Field("id", "integer", "number of the experiment", Experiment.id, nullable=False),
    Field("name", "text", "name; ~ finds a part of it", Experiment.name, nullable=False),
    Field("notes", "text", "notes; ~ finds a part of them", Experiment.notes, nullable=False),
    Field("tag", "text", "a tag", ExperimentTag.tag, stored=TAGS, member=_with_tag, nullable=False),
    Field("state", "choice", "state", STATE, choices=STATES, nullable=False),
    Field(
        "submitter", "text", "key:ID, user:NAME, local, alerts or calibrations", Experiment.owner,
        stored=select(Experiment.owner).distinct(), nullable=False,
    ),
    Field("group", "text", "group of the submitter", Experiment.group, stored=select(Experiment.group).distinct()),
    *names(commits.COLUMNS, commits.COLUMNS, "that the submitter named"),
    Field("runs", "integer", "number of its runs", Experiment.runs, nullable=False),
    Field("verdict", "choice", "verdict after its end", Experiment.verdict, ("verdict",), choices=VERDICTS),
    Field("ratio", "number", "step time of a / step time of b of its verdict: above 1, b is faster",
          Experiment.verdict, ("ratio",)),
    Field("created_at", "instant", "submission", Experiment.created_at),
    Field("started_at", "instant", "start of its first run", Experiment.started_at),
    Field("finished_at", "instant", "end of its last run", Experiment.finished_at),
)  # fmt: skip
OF_RUNS = fields(MEASURED, SETTINGS)
EXPERIMENT_FIELDS = fields(OWN, OF_RUNS.values())
OWN_NAMES = frozenset(field.name for field in OWN)


def condition(tree: Tree) -> ColumnElement[bool]:
    """SQL of an expression. The largest parts that name only what runs have must hold for one run together."""
    if names_of(tree).isdisjoint(OWN_NAMES):
        of_run = Run.experiment_id == Experiment.id
        return exists().where(of_run, of_lists.condition(tree, OF_RUNS)).correlate(Experiment)
    match tree:
        case Not(part):
            return not_(condition(part))
        case Every(parts):
            of_runs = tuple(part for part in parts if names_of(part).isdisjoint(OWN_NAMES))
            others = [condition(part) for part in parts if part not in of_runs]
            return and_(*others, *([condition(Every(of_runs))] if of_runs else []))
        case Either(parts):
            return or_(*(condition(part) for part in parts))
        case Comparison():
            return of_lists.condition(tree, EXPERIMENT_FIELDS)


def asks_runs(tree: Tree | None) -> bool:
    """Whether an expression names what only runs have."""
    return tree is not None and not names_of(tree) <= OWN_NAMES
