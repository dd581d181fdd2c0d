"""Extends finished experiments by further repetitions."""

from __future__ import annotations

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from gpt2core.spec.wording import counted
from taskloom.contract.experiments import ExperimentDetail, ExperimentRequest
from taskloom.server.access.keys.keyring import Caller
from taskloom.server.db import Database, existing, now
from taskloom.server.errors import InvalidTransition
from taskloom.server.queue.experiments import blocks, quotas
from taskloom.server.queue.experiments.details import detail, summaries
from taskloom.server.queue.experiments.expansion import expand
from taskloom.server.queue.experiments.memory import run_memory_bytes
from taskloom.server.queue.experiments.planning import stop_if_gone
from taskloom.server.queue.tables.experiments import Block, Experiment
from taskloom.server.queue.tables.runs import Run
from taskloom.server.queue.transitions.changes import Cause
from taskloom.server.queue.workers.capacity import Capacity
from taskloom.server.settings import Settings


def extend(
    database: Database, settings: Settings, experiment_id: int, repetitions: int, caller: Caller
) -> ExperimentDetail:
    """Queue further repetitions of every variant, on the node and cores of the experiment's last block.

    They are those that a larger number of repetitions would have been. Whoever extends an experiment has seen its
    results, so only intervals that hold at any time are valid from now on.

    Raises NotFound, InvalidTransition, ExpansionTooLarge, QueueFull or QuotaUsed.
    """
    with database.read() as session:
        experiment = existing(session, Experiment, experiment_id)
        request = ExperimentRequest.model_validate(experiment.request)
        runs, done = _check(session, experiment, request)
    # Without new checks: the submission was checked against nodes.
    longer = request.model_copy(update={"repetitions": done + repetitions, "stop": None})
    variants, planned = expand(longer, settings.max_runs, run_memory_bytes, Capacity(), stop_if_gone)
    new = [run for run in planned if run.repetition > done]
    with database.write() as session:
        experiment = existing(session, Experiment, experiment_id, lock=True)
        if _check(session, experiment, request) != (runs, done):
            raise InvalidTransition(
                f"experiment {experiment_id} was extended meanwhile", current="finished", allowed=["extend"]
            )
        quotas.check(session, settings, caller, len(new))
        last = select(Block.node, Block.core_set).where(Block.experiment_id == experiment_id, Block.node.is_not(None))
        place = session.execute(last.order_by(Block.number.desc()).limit(1)).first()
        cause = Cause(caller.actor, now(session), f"extended by {counted(repetitions, 'repetition')}")
        blocks.insert_runs(session, experiment, request, variants, new, cause)
        if place is not None:
            ours = update(Block).where(Block.experiment_id == experiment_id, Block.number >= new[0].block)
            session.execute(ours.values(node=place.node, core_set=place.core_set))
        experiment.runs += len(new)
        experiment.extended += repetitions
        experiment.finished_at = experiment.verdict = None
        session.flush()
        return detail(session, experiment)


def _check(session: Session, experiment: Experiment, request: ExperimentRequest) -> tuple[int, int]:
    """The numbers of runs and of repetitions. Raises InvalidTransition if the experiment cannot be extended."""
    (summary,) = summaries(session, [experiment])
    why = None
    if summary.state != "finished":
        why = f"is {summary.state}; only a finished experiment can be extended"
    elif request.tune is not None:
        why = "is a tuning, whose numbers of pairs and draws were fixed beforehand"
    elif request.order != "interleaved":
        why = f"has the order {request.order}; only repetitions in interleaved blocks can be continued"
    if why is not None:
        raise InvalidTransition(f"experiment {experiment.id} {why}", current=summary.state, allowed=[])
    last = select(func.max(Run.repetition)).where(Run.experiment_id == experiment.id)
    return experiment.runs, session.execute(last).scalar_one()
