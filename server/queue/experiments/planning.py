"""Plans of a request: its variants and runs, and how long they take."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from typing import Any

from anyio import NoEventLoopError, from_thread

from taskloom.contract.experiments import ExperimentRequest
from taskloom.contract.plans import DryRun, PlannedRun
from taskloom.server.db import Database
from taskloom.server.errors import (
    ExpansionTooLarge,
    InvalidRequest,
)
from taskloom.server.queue.experiments import durations, tuning
from taskloom.server.queue.experiments.expansion import Enough, expand
from taskloom.server.queue.experiments.memory import run_memory_bytes
from taskloom.server.queue.experiments.variants import Planned, Variant
from taskloom.server.queue.workers.capacity import capacity
from taskloom.server.settings import Settings


def dry_run(
    database: Database, settings: Settings, request: ExperimentRequest, enough: Enough, opening: tuning.Open
) -> tuple[DryRun, list[Variant]]:
    """Plan a submission: its runs, and its variants. Raises InvalidRequest, ExpansionTooLarge, ExclusionTooLarge or
    SpaceTooLarge."""
    storable(request)
    if request.tune is not None:
        return _planned_tuning(database, settings, request, opening)
    variants, planned, _ = expanded(database, settings, request, enough)
    repetitions = planned[-1].repetition
    with database.read() as session:
        estimated = durations.estimate(session, variants, stop_if_gone)
    plan = DryRun(
        runs=len(planned),
        variants=len(variants),
        repetitions=repetitions,
        memory_bytes=max(variant.memory_bytes for variant in variants),
        estimated_s=_attempts(request, repetitions) * sum(estimated.of_variants),
        estimate_basis=estimated.basis,
        order=_order(variants, planned),
    )
    return plan, variants


def _planned_tuning(
    database: Database, settings: Settings, request: ExperimentRequest, opening: tuning.Open
) -> tuple[DryRun, list[Variant]]:
    """The plan of a tuning; its runs are estimated to take as long as those of its first block."""
    with database.read() as session:
        largest = capacity(session)
    variants, planned, plan = tuning.expand(request, largest, opening, stop_if_gone)
    _check_size(settings, plan.runs)
    with database.read() as session:
        estimated = durations.estimate(session, variants, stop_if_gone)
    found = DryRun(
        runs=plan.runs,
        variants=plan.valid,
        repetitions=1,
        memory_bytes=max(variant.memory_bytes for variant in variants),
        estimated_s=_attempts(request, 1) * plan.runs * sum(estimated.of_variants) / len(variants),
        estimate_basis=estimated.basis,
        tuning=plan,
        order=_order(variants, planned),
    )
    return found, variants


def _order(variants: Sequence[Variant], planned: Sequence[Planned]) -> list[PlannedRun]:
    return [
        PlannedRun(
            position=run.position,
            block=run.block,
            repetition=run.repetition,
            variant=dict(variants[run.variant].values),
        )
        for run in planned
    ]


def expanded(
    database: Database,
    settings: Settings,
    request: ExperimentRequest,
    enough: Enough,
    opening: tuning.Open | None = None,
) -> tuple[list[Variant], list[Planned], int]:
    """Variants and runs to queue now, and the number of all runs."""
    with database.read() as session:
        largest = capacity(session)
    if request.tune is not None and opening is not None:
        variants, planned, plan = tuning.expand(request, largest, opening, stop_if_gone)
        _check_size(settings, plan.runs)
        return variants, planned, plan.runs
    variants, planned = expand(request, settings.max_runs, run_memory_bytes, largest, stop_if_gone, enough)
    return variants, planned, len(planned)


def _check_size(settings: Settings, runs: int) -> None:
    """Raises ExpansionTooLarge."""
    if runs > settings.max_runs:
        raise ExpansionTooLarge(
            f"the experiment has {runs} runs; the limit is {settings.max_runs}", runs=runs, max_runs=settings.max_runs
        )


def stop_if_gone() -> None:
    """Raise the cancellation if the client has gone."""
    with contextlib.suppress(NoEventLoopError):  # called by the server itself, without a client
        from_thread.check_cancelled()


def _attempts(request: ExperimentRequest, repetitions: int) -> int:
    """Attempts of each variant: its repetitions, and those that are traced."""
    return repetitions + {True: repetitions, "first": 1}.get(request.trace, 0)


def storable(request: ExperimentRequest) -> dict[str, Any]:
    """The request as it is stored. Raises InvalidRequest for text that JSON or the database cannot hold."""
    body = request.model_dump(mode="json", exclude_unset=True)
    try:
        text = json.dumps(body, ensure_ascii=False, allow_nan=False).encode().decode()
    except ValueError:  # UnicodeEncodeError is one
        text = "\\u0000"
    if "\\u0000" in text:
        entry = {"pointer": "", "field": "body", "value": None, "accepted": "valid Unicode without null characters"}
        raise InvalidRequest([entry])
    return body
