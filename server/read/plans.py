"""Dry runs: plans of submissions."""

from __future__ import annotations

from taskloom.analysis.estimators import Test
from taskloom.analysis.family import Family
from taskloom.analysis.sweep import planned
from taskloom.contract.experiments import DetectableDifference, DryRun, ExperimentRequest, PlannedFamily
from taskloom.server.db import Database
from taskloom.server.queue.experiments import service as experiments
from taskloom.server.read.analysis.service import calibrations
from taskloom.server.settings import Settings


def plan(database: Database, settings: Settings, request: ExperimentRequest) -> DryRun:
    """Plan of a submission: its runs, the smallest differences that calibrated nodes can detect, and whether it has
    enough pairs. Raises InvalidRequest, ExpansionTooLarge or ExclusionTooLarge."""
    found = experiments.dry_run(database, settings, request)
    family = planned([run.variant for run in found.order if run.repetition == 1], request.stop is not None)
    pairs = request.repetitions if request.stop is None else request.stop.max_repetitions
    paired = request.order == "interleaved"  # otherwise each run is a block of its own
    seen = [
        DetectableDifference(
            node=known.node,
            experiment_id=known.experiment_id,
            pairs=pairs,
            relative=known.at(pairs, max(1, family.size), request.stop is not None) if paired else None,
        )
        for known in calibrations(database)
    ]
    test: Test = "signed-rank" if request.stop is None else "signs"
    return found.model_copy(update={"detectable": seen, "family": _family(family, pairs if paired else 0, test)})


def _family(family: Family, pairs: int, test: Test) -> PlannedFamily | None:
    if family.size == 0:
        return None
    return PlannedFamily(
        comparisons=family.comparisons,
        pooled=family.pooled,
        pairs=pairs,
        smallest_p=family.smallest_p(pairs, test),
        needed=family.needed(test),
    )
