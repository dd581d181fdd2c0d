"""Verdict of an experiment."""

from __future__ import annotations

import dataclasses
from typing import Any

from taskloom.analysis import sentences
from taskloom.analysis.comparison import NOISE_FLOOR
from taskloom.analysis.tuning.answer import Tuning
from taskloom.analysis.tuning.sentence import disturbance
from taskloom.analysis.wording import settings
from taskloom.contract.experiments import Verdict
from taskloom.server.db import Database
from taskloom.server.queue.tables.experiments import Experiment
from taskloom.server.read.analysis import analyses
from taskloom.server.read.tuning import search


def verdict(database: Database, experiment_id: int) -> Verdict:
    """Verdict of an experiment's sweep or tuning. Raises NotFound."""
    with database.read() as session:
        experiment = session.get(Experiment, experiment_id)
    if experiment is not None and experiment.request.get("tune") is not None:
        return _of_tuning(search.tuning(database, experiment_id))
    found = analyses.sweep(database, experiment_id, None, NOISE_FLOOR)
    return Verdict.model_validate(dataclasses.asdict(found.verdict))


def _of_tuning(found: Tuning) -> Verdict:
    confirmed, best = found.confirmed, None if found.best is None else settings(found.best)
    figures: dict[str, Any] = {} if confirmed is None else {
        "verdict": confirmed.verdict, "ratio": confirmed.ratio,
        "low": confirmed.ratio_low, "high": confirmed.ratio_high,
    }  # fmt: skip
    disturbed, runs, _ = disturbance(found)
    few = 2 * disturbed <= runs  # the sentence begins with most
    return Verdict(
        sentence=sentences.disturbed(found.sentence, disturbed, runs) if few else found.sentence,
        **{"verdict": "none", **figures},
        a="default",
        b=best,
        runs=runs,
        disturbed_runs=disturbed,
    )
