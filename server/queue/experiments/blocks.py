"""Blocks of runs: queued with a submission, and, where an experiment has `stop`, one more as long as it is worth it."""

from __future__ import annotations

from typing import Any

from sqlalchemy import func, insert, select
from sqlalchemy.orm import Session

from taskloom.analysis.stopping import Stopping, judge
from taskloom.contract.experiments import ExperimentRequest
from taskloom.server.db import LOCKED, now
from taskloom.server.queue.attempts.models import Attempt
from taskloom.server.queue.experiments.expansion import Capacity, Planned, Variant, canonical_sha256, expand
from taskloom.server.queue.experiments.memory import run_memory_bytes
from taskloom.server.queue.experiments.models import Block, Experiment
from taskloom.server.queue.runs.models import Run
from taskloom.server.queue.runs.states import ACTIVE, RUN


def insert_runs(
    session: Session,
    experiment: Experiment,
    request: ExperimentRequest,
    variants: list[Variant],
    planned: list[Planned],
) -> None:
    """Queue planned runs of an experiment, with their blocks."""
    requires, at = request.requires, now(session)
    by_variant = [
        {
            "variant": dict(variant.values),
            "spec": variant.config.to_dict(),
            "shape": variant.shape,
            "cores_needed": variant.cores_needed(requires.cores),
            "pinned_cores": ",".join(map(str, sorted(variant.config.cores or ()))),
            "memory_needed_bytes": max(variant.memory_bytes, requires.memory_bytes or 0),
        }
        for variant in variants
    ]
    in_block: dict[int, list[dict[str, Any]]] = {}
    for run in planned:
        in_block.setdefault(run.block, []).append(by_variant[run.variant])
    session.execute(
        insert(Block),
        [{"experiment_id": experiment.id, "number": number, **_needs(of)} for number, of in sorted(in_block.items())],
    )
    common = {
        "experiment_id": experiment.id,
        "rank": -request.priority,
        "timeout_s": request.limits.timeout_s,
        "purpose": "timing",
        "state": RUN.states[0],
        "attempts": 0,
        "losses": 0,
        "created_at": at,
        "queued_at": at,
    }
    session.execute(
        insert(Run),
        [
            {
                **common,
                **by_variant[run.variant],
                "position": run.position,
                "block": run.block,
                "repetition": run.repetition,
                "trace": request.trace is True or (request.trace == "first" and run.repetition == 1),
            }
            for run in planned
        ],
    )


def _needs(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """What a worker must have to run all of these."""
    pinned = {int(core) for run in runs for core in filter(None, run["pinned_cores"].split(","))}
    return {
        "cores_needed": max(run["cores_needed"] for run in runs),
        "memory_needed_bytes": max(run["memory_needed_bytes"] for run in runs),
        "pinned_cores": ",".join(map(str, sorted(pinned))),
    }


def extend(session: Session, experiment_id: int) -> bool:
    """A run of the experiment has ended: if it was the last one, queue another block, unless it is to stop.

    Whether there is one. The experiment's row is locked, so that of two runs that end at the same moment one sees both.
    """
    if session.get_one(Experiment, experiment_id).request.get("stop") is None:
        return False
    experiment = session.get_one(Experiment, experiment_id, with_for_update=LOCKED, populate_existing=True)
    still = select(Run.id).where(Run.experiment_id == experiment_id, Run.state.in_(("queued", *ACTIVE))).limit(1)
    if experiment.cancelled_at is not None or session.execute(still).first() is not None:
        return False
    found = stopping(session, experiment)
    if found.reason is not None:
        return False
    request = ExperimentRequest.model_validate(experiment.request)
    longer = request.model_copy(update={"repetitions": found.repetitions + 1, "stop": None})
    # As it was once taken: what a node can run, and how much may be submitted, was looked at then.
    variants, planned = expand(longer, 2 * experiment.runs, run_memory_bytes, Capacity())
    block = planned[-len(variants) :]
    insert_runs(session, experiment, request, variants, block)
    experiment.runs += len(block)
    return True


def stopping(session: Session, experiment: Experiment) -> Stopping:
    """Where an experiment with `stop` stands."""
    request = ExperimentRequest.model_validate(experiment.request)
    assert request.stop is not None
    values: dict[str, list[float]] = {}
    runs = select(Run.spec, Run.block, Run.state, Run.median_step_s).where(Run.experiment_id == experiment.id)
    open_blocks, blocks = set(), set()
    for spec, block, state, median_step_s in session.execute(runs):
        blocks.add(block)
        if state in ("queued", *ACTIVE):
            open_blocks.add(block)
        mine = values.setdefault(canonical_sha256(spec), [])
        if state == "succeeded" and median_step_s is not None:
            mine.append(median_step_s)
    spent = func.sum(func.coalesce(Attempt.finished_at, now(session)) - Attempt.claimed_at)
    of_it = select(spent).join(Run, Run.id == Attempt.run_id).where(Run.experiment_id == experiment.id)
    return judge(
        list(values.values()),
        len(blocks) - len(open_blocks),
        float(session.execute(of_it).scalar_one() or 0.0),
        request.stop.rel_ci,
        request.stop.max_repetitions,
        request.stop.budget_s,
    )
