"""An experiment's variants, from columns of its runs; no result is read."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sqlalchemy import select

from gpt2core.spec.phases import PHASES
from gpt2core.spec.result import median
from taskloom.analysis.statistics import median_bounds
from taskloom.contract.variants import VariantRow, VariantTable
from taskloom.server.db import Database, existing
from taskloom.server.queue.attempts import node_time, resolved
from taskloom.server.queue.runs.details import main_settings
from taskloom.server.queue.tables.experiments import Experiment
from taskloom.server.queue.tables.runs import Run
from taskloom.server.queue.tables.states import ACTIVE, OPEN

COLUMNS = (
    Run.variant, Run.spec, Run.shape, Run.state, Run.median_step_s, Run.tokens_per_s, Run.final_loss, Run.phase_s,
    Run.flagged_steps, Run.node, Run.environment_sha256, Run.resolved, *node_time.COLUMNS.values(),
)  # fmt: skip


def variants(database: Database, experiment_id: int) -> VariantTable:
    """Raises NotFound."""
    groups: dict[str, list[Any]] = {}
    with database.read() as session:
        experiment = existing(session, Experiment, experiment_id)
        runs = select(*COLUMNS).where(Run.experiment_id == experiment_id).order_by(Run.position)
        stops = experiment.stops_early
        for run in session.execute(runs):
            groups.setdefault(json.dumps(run.variant, sort_keys=True), []).append(run)
    active = any(run.state in OPEN for group in groups.values() for run in group)
    return VariantTable(experiment_id=experiment_id, rows=[
        _row(experiment_id, group, stops or active) for group in groups.values()
    ])  # fmt: skip


def _row(experiment_id: int, group: Sequence[Any], stops: bool) -> VariantRow:
    states = Counter(run.state for run in group)
    timed = [run for run in group if run.median_step_s is not None]
    steps_s = [run.median_step_s for run in timed]
    bounds = median_bounds(steps_s, stops) if steps_s else None
    rates = [run.tokens_per_s for run in timed if run.tokens_per_s is not None]
    losses = {run.final_loss for run in timed if run.final_loss is not None}
    ended = ("succeeded", "failed", "cancelled", "quarantined")
    return VariantRow(
        experiment_id=experiment_id,
        variant=group[0].variant,
        settings=main_settings(group[0].spec),
        resolved=resolved.agreed(group),
        runs=len(group),
        queued=states["queued"],
        active=sum(states[state] for state in ACTIVE),
        **{state: states[state] for state in ended},
        flagged_runs=sum(bool(run.flagged_steps) for run in group),
        median_step_s=_median(steps_s),
        low=None if bounds is None else bounds[0],
        high=None if bounds is None else bounds[1],
        min_step_s=min(steps_s, default=None),
        max_step_s=max(steps_s, default=None),
        tokens_per_s=statistics.harmonic_mean(rates) if rates else None,
        **{f"{phase}_s": _median(map(_phase(phase), timed)) for phase in PHASES},
        final_loss=min(losses) if len(losses) == 1 else _median(losses),
        node_s=_median(map(node_time.total_s, timed)),
        losses=len(losses),
        nodes=sorted({run.node for run in timed if run.node is not None}),
        environments=len({run.environment_sha256 for run in timed if run.environment_sha256 is not None}),
    )


def _phase(phase: str) -> Callable[[Any], float | None]:
    return lambda run: (run.phase_s or {}).get(phase)


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
