"""The names that filters of runs know."""

from __future__ import annotations

from typing import Any, get_args

from sqlalchemy import ColumnElement, SelectBase, select

from gpt2core.spec.field_types import is_integer
from gpt2core.spec.phases import PHASES
from gpt2core.spec.result import NODE_TIME
from taskloom.contract.runs import RunState
from taskloom.server.queue.attempts import commits, resolved
from taskloom.server.queue.tables.experiments import Experiment, ExperimentTag
from taskloom.server.queue.tables.runs import Run, Series
from taskloom.server.queue.tables.workers import Worker
from taskloom.server.read.lists.commits import names
from taskloom.server.read.lists.fields import Field, fields, settings_in

NEWEST = 5_000  # runs whose values are known besides those of series


def _stored(value: Any) -> SelectBase:
    """Values of a setting: those of the newest runs, and of the runs with a result."""
    newest = select(Run.id).order_by(Run.id.desc()).limit(NEWEST)
    of_series: Any = type(value)(Series.config, *list(value.clauses)[1:])
    return select(value).where(Run.id.in_(newest)).union(select(of_series))


def _with_tag(condition: ColumnElement[bool]) -> ColumnElement[bool]:
    return Run.experiment_id.in_(select(ExperimentTag.experiment_id).where(condition))


TAGS = select(ExperimentTag.tag).distinct()
NODES = select(Worker.node).union(select(Series.node))
MEASURED = (
    Field("median_step_s", "number", "median of the timed steps, seconds", Run.median_step_s),
    Field("tokens_per_s", "number", "tokens, or images, a second", Run.tokens_per_s),
    Field("final_loss", "number", "loss of the last step", Run.final_loss),
    Field("flagged_steps", "integer", "number of flagged steps", Run.flagged_steps),
    Field("node", "text", "node of the canonical result", Run.node, stored=NODES),
    Field("duration_s", "number", "from its start to its end, seconds", Run.finished_at - Run.started_at),
    *(
        Field(f"{phase}_s", "number", f"median time of the phase {phase}, seconds", Run.phase_s, (phase,))
        for phase in PHASES
    ),
    *(
        Field(f"node_{part}_s", "number", f"node time: {part}, seconds", getattr(Run, f"node_{part}_s"))
        for part in NODE_TIME
    ),
    *(
        Field(f"resolved_{name}", "integer" if is_integer(name) else "text",
              f"{name} of the result, which the trainer chose where the request left it open", Run.resolved, (name,))
        for name in resolved.NAMES
    ),
    *names(commits.TRAINER, (), "of the trainer that ran", "trainer_"),
)  # fmt: skip
NAMED = [
    select(column).where(Experiment.id == Run.experiment_id).correlate(Run).scalar_subquery()
    for column in commits.COLUMNS
]
SETTINGS = settings_in(Run.spec, _stored)
RUN_FIELDS = fields(
    [
        Field("id", "integer", "number of the run", Run.id, nullable=False),
        Field("experiment_id", "integer", "number of its experiment", Run.experiment_id, nullable=False),
        Field("state", "choice", "state", Run.state, choices=get_args(RunState), nullable=False),
        *MEASURED,
        Field("tag", "text", "tag of its experiment", ExperimentTag.tag, stored=TAGS, member=_with_tag, nullable=False),
        *names(NAMED, commits.COLUMNS, "that the submitter named"),
        Field("repetition", "integer", "repetition, from 1", Run.repetition, nullable=False),
        Field("block", "integer", "position of its block in the design, from 0", Run.block, nullable=False),
        Field("attempts", "integer", "number of attempts", Run.attempts, nullable=False),
        Field("created_at", "instant", "submission", Run.created_at),
        Field("started_at", "instant", "start of its first attempt", Run.started_at),
        Field("finished_at", "instant", "end", Run.finished_at),
    ],
    SETTINGS,
)
