"""Tunings: the next block, and the answer. The queue stores what this module computes."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select

from gpt2core.spec.config import DEFAULTS, TrainConfig
from gpt2core.step import slicing
from taskloom.analysis.processes import Process
from taskloom.analysis.tuning import answer as answers
from taskloom.analysis.tuning import protocol
from taskloom.analysis.tuning.answer import Tuning
from taskloom.analysis.tuning.protocol import FEWEST_PAIRS, Following, Run, Terms
from taskloom.analysis.tuning.share import beats_at_least
from taskloom.analysis.tuning.space import MOST_COMBINATIONS, Space, read_settings, space
from taskloom.analysis.tuning.space import SpaceTooLarge as TooLarge
from taskloom.contract.experiments import ExperimentRequest
from taskloom.contract.plans import PlannedTuning
from taskloom.server.db import Database
from taskloom.server.errors import NotFound, SpaceTooLarge
from taskloom.server.queue.experiments import blocks
from taskloom.server.queue.experiments.refusals import Refusals
from taskloom.server.queue.experiments.tuning import Opening, Part, base_of
from taskloom.server.queue.tables.experiments import Experiment
from taskloom.server.queue.tables.runs import Run as Row
from taskloom.server.queue.tables.states import OPEN
from taskloom.server.read.analysis import reading
from taskloom.server.read.analysis.selection import Selection
from taskloom.server.read.tuning.kept import machine_of, problem_of

SPACES = 4  # that a process keeps


def opening(request: ExperimentRequest, refusals: Refusals, between: Callable[[], None]) -> Opening:
    """The first block of a tuning, and its plan. Raises InvalidRequest or SpaceTooLarge."""
    terms, found = _terms(request), _space(request, between)
    if not len(found):
        for error in found.refusals:
            where = f"/space/{error.field}" if error.field in request.space else "/space"
            refusals.add(where, error.field, error.value, error.accepted)
        if not found.refusals:
            refusals.add("/exclude", "exclude", request.exclude, "entries that leave at least one combination")
        refusals.raise_if_any()
    following = protocol.following(terms, found, [], 0.0)
    return Opening(_parts(request, found, following), _plan(terms, found))


def _plan(terms: Terms, found: Space) -> PlannedTuning:
    explored = terms.explored(len(found))
    sampler = terms.sampler_of(len(found))
    most = beats_at_least(terms.fresh, terms.fresh) if terms.fresh else None
    sentences = []
    if sampler != terms.sampler:
        times = terms.runs // len(found)
        sentences.append(f"{terms.runs} runs suffice for each of the {len(found)} valid settings {times} times, so the "
                         "grid is measured instead of a search")  # fmt: skip
    if terms.confirm < FEWEST_PAIRS:
        sentences.append(f"no ratio to the default: a confirmation needs at least {FEWEST_PAIRS} pairs")
    sentences.append("no share of the space: there are no fresh draws" if most is None
                     else f"{terms.fresh} fresh draws: at most {int(100 * most)} % of the valid settings")  # fmt: skip
    return PlannedTuning(
        valid=len(found),
        invalid=found.invalid,
        excluded=found.excluded,
        equal=found.equal,
        combinations=found.combinations,
        sampler=sampler,
        explore_runs=explored,
        blocks=terms.explore_blocks(len(found)) + terms.confirm + terms.fresh,
        runs=terms.planned(len(found)),
        beats_at_most=most,
        can_say=sentences,
    )


def following(database: Database, experiment_id: int, runs: int) -> Mapping[str, Any]:
    """The next block of a tuning whose runs have all ended, for queue/experiments/tuning.decide. runs: their number, so
    that equal questions are one. Raises NotFound."""
    known = _read(database, experiment_id)
    found = _space(known.request)
    next_ = protocol.following(_terms(known.request), found, known.runs_in(found), known.spent_s)
    parts = [{"role": part.role, "values": part.values} for part in _parts(known.request, found, next_)]
    return {"runs": runs, "reason": next_.reason, "parts": parts}


def tuning(database: Database, experiment_id: int) -> Tuning:
    """The answer of a tuning so far. Raises NotFound."""
    known = _read(database, experiment_id)
    found = _space(known.request)
    return answers.answer(
        experiment_id,
        _terms(known.request),
        found,
        base_of(known.request),
        known.runs_in(found),
        known.processes,
        known.spent_s,
        known.reason,
        known.cancelled,
    )


def kept(database: Database, experiment_id: int) -> dict[str, Any] | None:
    """What a tuning leaves for later: the fields of a TunedSetting. None unless its winner is confirmed to be faster
    than the default, on one node with one fingerprint. Raises NotFound."""
    found, known = tuning(database, experiment_id), _read(database, experiment_id)
    if found.confirmed is None or found.confirmed.verdict != "faster" or found.best is None:
        return None
    winners = [known.processes[row.id] for row in known.rows if row.role == "winner" and row.id in known.processes]
    machines = [machine_of(process.environment) for process in winners]
    if any(machine != machines[0] for machine in machines):
        return None
    confirmed = found.confirmed
    return {
        "node": str(machines[0]["node"]),
        "machine": machines[0],
        "problem": problem_of(TrainConfig.from_dict(base_of(known.request)).to_dict()),
        "settings": found.best,
        "ratio": confirmed.ratio,
        "ratio_low": confirmed.ratio_low,
        "ratio_high": confirmed.ratio_high,
        "pairs": confirmed.pairs,
        "beats_at_least": found.beats_at_least,
        "sentence": found.sentence,
    }


@dataclass(frozen=True)
class _Known:
    """A tuning as stored. rows: (id, block, role, variant, state, error) of its runs, in the order of their ids."""

    request: ExperimentRequest
    rows: list[Any]
    processes: dict[int, Process]
    spent_s: float
    reason: Any
    cancelled: bool

    def runs_in(self, found: Space) -> list[Run]:
        """The runs, with the step times that count."""
        runs = []
        for row in self.rows:
            fault = None
            if row.state not in (*OPEN, "succeeded"):
                fault = str((row.error or {}).get("detail") or (row.error or {}).get("slug") or row.state)
            point = None if row.role == "default" else found.index(row.variant)
            timed = row.id in self.processes
            runs.append(Run(row.id, row.block, row.role, point, fault=fault, ended=timed or row.state not in OPEN))
        return answers.with_agreement(runs, self.processes)


def _read(database: Database, experiment_id: int) -> _Known:
    with database.read(snapshot=True) as session:
        experiment = session.get(Experiment, experiment_id)
        if experiment is None or experiment.request.get("tune") is None:
            what = "no experiment" if experiment is None else "no tuning: experiment"
            raise NotFound(f"there is {what} {experiment_id}" + " has no `tune`" * (experiment is not None))
        columns = Row.id, Row.block, Row.role, Row.variant, Row.state, Row.error
        rows = session.execute(select(*columns).where(Row.experiment_id == experiment_id).order_by(Row.id)).all()
        processes = reading.selected(session, Selection(experiment_id=experiment_id))
        return _Known(
            request=ExperimentRequest.model_validate(experiment.request),
            rows=list(rows),
            processes={process.run_id: process for process in processes},
            spent_s=blocks.spent_s(session, experiment_id),
            reason=experiment.stop_reason,
            cancelled=experiment.cancelled_at is not None,
        )


def _terms(request: ExperimentRequest) -> Terms:
    assert request.tune is not None
    return Terms(**request.tune.model_dump())


def _parts(request: ExperimentRequest, found: Space, next_: Following) -> list[Part]:
    base = base_of(request)
    default = {name: base.get(name, DEFAULTS[name]) for name in request.space}
    return [Part(role, default if point is None else found.settings(point)) for role, point in next_.parts]


def _space(request: ExperimentRequest, between: Callable[[], None] | None = None) -> Space:
    """The space of a request. Raises SpaceTooLarge."""
    parts = json.dumps([base_of(request), request.space, request.exclude])
    try:
        return _enumerated(parts) if between is None else _enumerate(parts, between)
    except TooLarge as error:
        raise SpaceTooLarge(
            str(error), combinations=error.combinations, max_combinations=MOST_COMBINATIONS
        ) from None


@functools.lru_cache(SPACES)
def _enumerated(parts: str) -> Space:
    return _enumerate(parts, lambda: None)


def _enumerate(parts: str, between: Callable[[], None]) -> Space:
    base, values, exclude = json.loads(parts)
    return space(base, values, exclude, _as_used, between)


def _as_used(config: TrainConfig) -> dict[str, Any]:
    """The settings as the trainer uses them, with its automatic slices."""
    batch_slice, token_slice = slicing.sizes(config)
    return {**read_settings(config), "batch_slice": batch_slice, "token_slice": token_slice}
