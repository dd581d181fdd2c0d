"""Dry runs: plans of submissions."""

from __future__ import annotations

from taskloom.contract.experiments import DetectableDifference, DryRun, ExperimentRequest
from taskloom.server.db import Database
from taskloom.server.queue.experiments import service as experiments
from taskloom.server.read.analysis.service import calibrations
from taskloom.server.settings import Settings


def plan(database: Database, settings: Settings, request: ExperimentRequest) -> DryRun:
    """Plan of a submission: its runs, and the smallest differences that calibrated nodes can detect. Raises
    InvalidRequest, ExpansionTooLarge or ExclusionTooLarge."""
    found = experiments.dry_run(database, settings, request)
    first = request.axes.get("scheduler") or next(iter(request.axes.values()), [None])
    comparisons = found.variants - found.variants // len(first)
    seen = [
        DetectableDifference(
            node=known.node,
            experiment_id=known.experiment_id,
            pairs=request.repetitions,
            relative=known.at(request.repetitions, max(1, comparisons)),
        )
        for known in calibrations(database)
    ]
    return found.model_copy(update={"detectable": seen})
