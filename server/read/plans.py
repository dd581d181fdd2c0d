"""Dry runs: plans of submissions, and what they can decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from taskloom.analysis.against_faster import rivals
from taskloom.analysis.estimators import Test
from taskloom.analysis.family import Family
from taskloom.analysis.sweep import planned
from taskloom.analysis.variants import Sides, varying
from taskloom.analysis.wording import settings as named
from taskloom.contract.experiments import ExperimentRequest
from taskloom.contract.plans import DetectableDifference, DryRun, PlannedFamily, PlannedQuestion
from taskloom.server.db import Database
from taskloom.server.queue.experiments import planning, primary
from taskloom.server.queue.experiments.variants import Variant
from taskloom.server.read.analysis.analyses import calibrations
from taskloom.server.read.tuning.search import opening
from taskloom.server.settings import Settings

CALIBRATING_RUNS = 20  # by default: ten pairs


def plan(database: Database, settings: Settings, request: ExperimentRequest) -> DryRun:
    """Plan of a submission: its runs, the smallest differences that calibrated nodes can detect, and whether it has
    enough pairs. Raises InvalidRequest, ExpansionTooLarge, ExclusionTooLarge or SpaceTooLarge."""
    found, variants = planning.dry_run(database, settings, request, enough, opening)
    if request.tune is not None:
        return found
    question = _sides(request, variants)
    family = _family(request, variants, question)
    paired = request.order == "interleaved"  # otherwise each run is a block of its own
    pairs = 0 if not paired else found.repetitions if request.stop is None else request.stop.max_repetitions
    statements = 1 if question is not None else max(1, family.size)
    detectable = [
        DetectableDifference(
            node=known.node,
            experiment_id=known.experiment_id,
            pairs=pairs or found.repetitions,
            relative=known.at(pairs, statements, request.stop is not None) if paired else None,
        )
        for known in calibrations(database)
    ]
    decided = {
        "family": None if family.size == 0 else PlannedFamily(
            comparisons=family.comparisons, pooled=family.pooled, **_decidable(family, pairs, _test(request))
        ),
        "primary": None if question is None else PlannedQuestion(
            **_names(question), **_decidable(Family(1), pairs, _test(request))
        ),
    }  # fmt: skip
    return found.model_copy(update={"detectable": detectable, **decided})


def enough(request: ExperimentRequest, variants: Sequence[Variant]) -> int:
    """The default number of repetitions: as many pairs as can decide the question and any one other comparison alone,
    also that with the faster of several orders of loops; 1 if there are no pairs, and with `stop`, which adds
    repetitions."""
    if request.calibrates:
        return CALIBRATING_RUNS
    if request.stop is not None or request.order != "interleaved":
        return 1
    question = _sides(request, variants)
    family = _family(request, variants, question)
    values = [variant.values for variant in variants]
    faster = Family(len(rivals(values, next(iter(varying(values)), None))))
    judged = [each for each in (family, faster, Family(int(question is not None))) if each.size]
    return max((each.needed() for each in judged), default=1)


def _sides(request: ExperimentRequest, variants: Sequence[Variant]) -> Sides | None:
    if request.primary is None:
        return None
    return primary.sides(request.primary, [(variant.values, variant.spec) for variant in variants])


def _family(request: ExperimentRequest, variants: Sequence[Variant], question: Sides | None) -> Family:
    return planned([variant.values for variant in variants], request.stop is not None, question)


def _test(request: ExperimentRequest) -> Test:
    return "signed-rank" if request.stop is None else "signs"


def _decidable(family: Family, pairs: int, test: Test) -> dict[str, Any]:
    needed = family.needed(test)
    return {
        "pairs": pairs,
        "smallest_p": family.smallest_p(pairs, test),
        "needed": needed,
        "decidable": pairs >= needed,
    }


def _names(question: Sides) -> Mapping[str, str]:
    return {side: named(values) for side, values in zip("ab", question, strict=True)}
