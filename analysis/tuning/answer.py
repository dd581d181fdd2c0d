"""The answer of a tuning: the setting, how much faster it is than the default, and what share of the space it beats."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from taskloom.analysis.agreement import agree
from taskloom.analysis.compared import Comparison
from taskloom.analysis.comparison import compare
from taskloom.analysis.processes import Process
from taskloom.analysis.tuning import protocol
from taskloom.analysis.tuning.protocol import FEWEST_PAIRS, Phase, Reason, Run, Terms
from taskloom.analysis.tuning.sampler import Sampler
from taskloom.analysis.tuning.sentence import sentence
from taskloom.analysis.tuning.share import CONFIDENCE, beats_at_least
from taskloom.analysis.tuning.space import Space
from taskloom.analysis.validity import doubtful

TrialState = Literal["measured", "failed", "disagrees", "no-default", "open"]
DrawState = Literal["slower", "not-slower", "failed", "equal", "not-run", "open"]


@dataclass(frozen=True)
class SpaceSize:
    """Number of combinations. valid: different configurations that the trainer accepts; invalid: refused; excluded: by
    the request; equal: to another valid one, since the scheduler does not read a setting."""

    valid: int
    invalid: int
    excluded: int
    equal: int
    combinations: int


@dataclass(frozen=True)
class Trial:
    """A run of explore. ratio: step time of the block's default / its step time; null unless it was measured."""

    run_id: int
    block: int
    settings: dict[str, Any]
    state: TrialState
    step_s: float | None
    ratio: float | None
    flagged: bool
    reason: str | None


@dataclass(frozen=True)
class ConfirmPair:
    """A block of the confirmation. ratio: step time of the default / that of the winner; null if one is missing."""

    block: int
    default_run: int | None
    winner_run: int | None
    default_s: float | None
    winner_s: float | None
    ratio: float | None


@dataclass(frozen=True)
class Draw:
    """A setting drawn at random after the winner was chosen. ratio: its step time / that of the winner in its block."""

    settings: dict[str, Any]
    state: DrawState
    block: int | None
    run_id: int | None
    ratio: float | None


@dataclass(frozen=True)
class Confirmed:
    """The winner against the default, from the pairs of the confirmation alone. disturbed_runs: of their runs, those
    with flagged steps or foreign load."""

    ratio: float
    ratio_low: float | None
    ratio_high: float | None
    verdict: str
    pairs: int
    p_value: float | None
    reason: str
    disturbed_runs: int = 0


@dataclass(frozen=True)
class Share:
    """Share of the valid settings that the winner is faster than. at_least: exact lower bound (Clopper-Pearson)."""

    at_least: float
    slower: int
    drawn: int
    space: int
    confidence: float


@dataclass(frozen=True)
class Importance:
    """Mean |effect| of a setting's values on the logarithm of the step time, over n trials. Exploratory."""

    setting: str
    effect: float
    n: int


@dataclass(frozen=True)
class Tuning:
    """State and answer of a tuning. best: the settings of the winner; until explore ends, the best so far. base: the
    request's base with these settings. missing: what the sentence lacks, and why. beats: slower / drawn of the share;
    k, m, beats_at_least, confidence: its other figures. disturbed_runs: of `spent_runs`, those with flagged steps or
    foreign load."""

    experiment_id: int
    phase: Phase
    reason: Reason | None
    sampler: Sampler
    planned_runs: int
    spent_runs: int
    spent_s: float
    space: SpaceSize
    best: dict[str, Any] | None
    base: dict[str, Any] | None
    best_ratio: float | None
    confirmed: Confirmed | None
    share: Share | None
    sentence: str
    missing: list[str]
    beats: float | None
    beats_at_least: float | None
    k: int | None
    m: int | None
    confidence: float
    trials: list[Trial]
    pairs: list[ConfirmPair]
    draws: list[Draw]
    importance: list[Importance]
    disturbed_runs: int = 0


def with_agreement(runs: Sequence[Run], processes: Mapping[int, Process]) -> list[Run]:
    """The runs with the step times of their processes. A run that does not agree with its block's default (or winner,
    in fresh) has none, and the reason; nor has a run of another node."""
    found = []
    blocks = protocol.by_block(runs)
    for run in runs:
        process = processes.get(run.run_id)
        if process is None:
            found.append(run)
            continue
        reference = "winner" if protocol.phase_of(blocks[run.block]) == "fresh" else "default"
        other = next((processes.get(each.run_id) for each in blocks[run.block] if each.role == reference), None)
        if other is not None and other.pair != process.pair:
            found.append(dataclasses.replace(run, step_s=None, fault=None, apart=True))
            continue
        agreement = None if other is None or other is process else agree(other, process)
        if agreement is not None and not agreement.holds:
            found.append(dataclasses.replace(run, step_s=None, fault=agreement.reason, disagrees=True))
        else:
            flagged = bool(process.flagged)
            found.append(dataclasses.replace(run, step_s=process.median_step_s, fault=None, flagged=flagged))
    return found


def answer(
    experiment_id: int,
    terms: Terms,
    space: Space,
    base: Mapping[str, Any],
    runs: Sequence[Run],
    processes: Mapping[int, Process],
    spent_s: float,
    reason: Reason | None,
    cancelled: bool = False,
) -> Tuning:
    """The answer from the runs so far (`with_agreement`). reason: why the tuning ended; null while it continues."""
    winner = protocol.best(space, runs)
    results = protocol.tried(runs)
    values = protocol.values_of(results)
    over = reason is not None or cancelled
    confirmed, missing = _confirmed(terms, runs, processes, over) if winner is not None else (None, [])
    drawn = _draws(terms, space, runs, winner) if winner is not None else []
    share = _share(space, drawn) if over else None
    if over and winner is not None:
        missing += _lacking_draws(drawn, share)
    best = None if winner is None else space.settings(winner)
    trials = [_trial(space, run, runs) for run in runs if run.role == "trial"]
    texts = [({k: json.dumps(v, sort_keys=True) for k, v in space.settings(each.point).items()}, each.value)
             for each in results if each.value is not None]  # fmt: skip
    phase = "ended" if over else protocol.shown_phase(runs, None)
    found = Tuning(
        experiment_id=experiment_id,
        phase=phase,
        reason=reason,
        sampler=terms.sampler_of(len(space)),
        planned_runs=terms.planned(len(space)) + _repeated_runs(runs),
        spent_runs=sum(run.ended for run in runs),
        spent_s=spent_s,
        space=SpaceSize(len(space), space.invalid, space.excluded, space.equal, space.combinations),
        best=best,
        base=None if best is None else {**base, **best},
        best_ratio=math.exp(-values[winner]) if winner in values else None,
        confirmed=confirmed,
        share=share,
        sentence="",
        missing=missing,
        beats=None if share is None else share.slower / share.drawn,
        beats_at_least=None if share is None else share.at_least,
        k=None if share is None else share.slower,
        m=None if share is None else share.drawn,
        confidence=CONFIDENCE,
        trials=trials,
        pairs=_pairs(runs),
        draws=drawn,
        importance=[Importance(*each) for each in protocol.importance(texts)],
        disturbed_runs=sum(doubtful(processes[run.run_id]) for run in runs if run.run_id in processes),
    )
    return dataclasses.replace(found, sentence=sentence(found, terms.confirm))


def _repeated_runs(runs: Sequence[Run]) -> int:
    phases: tuple[Phase, ...] = ("confirm", "fresh")
    return sum(len(of) for phase in phases for of in protocol.repeated(runs, phase))


def _confirmed(
    terms: Terms, runs: Sequence[Run], processes: Mapping[int, Process], over: bool
) -> tuple[Confirmed | None, list[str]]:
    """The comparison, and what it lacks. It is made once all of its pairs, whose number was fixed, have ended."""
    if terms.confirm < FEWEST_PAIRS:
        lack = f"a confirmation needs at least {FEWEST_PAIRS} pairs; the request has {terms.confirm}"
        return None, [lack] if over else []
    blocks = protocol.counted(runs, "confirm")
    if not all(run.ended for of in blocks for run in of) or (len(blocks) < terms.confirm and not over):
        return None, []
    complete = len(blocks) == terms.confirm
    sides: dict[str, list[Process]] = {"default": [], "winner": []}
    for run in (run for of in blocks for run in of):
        if run.run_id in processes and run.step_s is not None:
            # The number of pairs was fixed beforehand, unless the tuning ended during the confirmation.
            process = dataclasses.replace(processes[run.run_id], stop_rule=not complete)
            sides[run.role].append(process)
    both = {p.block for p in sides["default"]} & {p.block for p in sides["winner"]}
    if len(both) < FEWEST_PAIRS:
        return None, [f"{len(both)} of {terms.confirm} pairs of the confirmation have results; a ratio needs "
                      f"{FEWEST_PAIRS}"]  # fmt: skip
    default, winner = ([p for p in side if p.block in both] for side in sides.values())
    found: Comparison = compare(default, winner)
    if found.ratio is None:
        return None, [f"the confirmation is refused: {found.reason}"]
    shown = Confirmed(
        found.ratio, found.ratio_low, found.ratio_high, found.verdict, len(both), found.p_value, found.reason,
        sum(map(doubtful, (*default, *winner))),
    )  # fmt: skip
    lacking = terms.confirm - len(both)
    return shown, [f"{lacking} of {terms.confirm} pairs of the confirmation have no result"] if lacking else []


def _pairs(runs: Sequence[Run]) -> list[ConfirmPair]:
    found = []
    for block, of in protocol.by_block(runs).items():
        if protocol.phase_of(of) == "confirm":
            default, winner = (next((run for run in of if run.role == role), None) for role in ("default", "winner"))
            d, w = (None if run is None else run.step_s for run in (default, winner))
            ids = [None if run is None else run.run_id for run in (default, winner)]
            found.append(ConfirmPair(block, ids[0], ids[1], d, w, d / w if d and w else None))
    return found


def _trial(space: Space, run: Run, runs: Sequence[Run]) -> Trial:
    control = next((each.step_s for each in runs if each.block == run.block and each.role == "default"), None)
    state: TrialState
    if not run.ended:
        state = "open"
    elif run.fault is not None:
        state = "disagrees" if run.disagrees else "failed"
    else:
        state = "measured" if control is not None and run.step_s is not None else "no-default"
    ratio = control / run.step_s if state == "measured" and control and run.step_s else None
    settings = {} if run.point is None else space.settings(run.point)
    reason = "the default of its block ran on another node" if run.apart else run.fault
    return Trial(run.run_id, run.block, settings, state, run.step_s, ratio, run.flagged, reason)


def _share(space: Space, drawn: Sequence[Draw]) -> Share | None:
    """The share, whose number of draws was fixed beforehand: what has no result counts against the winner. None if no
    draw was made."""
    if not drawn or (all(each.run_id is None for each in drawn) and any(each.state != "equal" for each in drawn)):
        return None
    slower = sum(each.state == "slower" for each in drawn)
    return Share(beats_at_least(slower, len(drawn)), slower, len(drawn), len(space), CONFIDENCE)


def _lacking_draws(drawn: Sequence[Draw], share: Share | None) -> list[str]:
    if not drawn:
        return ["the request has no fresh draws, so the share of the space is unknown"]
    if share is None:
        return ["the tuning ended before the fresh draws, so the share of the space is unknown"]
    undrawn = sum(each.state == "not-run" for each in drawn)
    return [f"{undrawn} of {len(drawn)} fresh draws were not run and count against the setting"] if undrawn else []


def _draws(terms: Terms, space: Space, runs: Sequence[Run], winner: int) -> list[Draw]:
    blocks = iter(protocol.counted(runs, "fresh"))
    found = []
    for point in protocol.draws(terms, len(space)):
        settings = space.settings(point)
        of = None if point == winner else next(blocks, None)
        if of is None:
            found.append(Draw(settings, "equal" if point == winner else "not-run", None, None, None))
            continue
        drawn, beside = (next(run for run in of if run.role == role) for role in ("drawn", "winner"))
        state: DrawState
        ratio = drawn.step_s / beside.step_s if drawn.step_s and beside.step_s else None
        if not (drawn.ended and beside.ended):
            state = "open"
        elif ratio is None:
            state = "failed"
        else:
            state = "slower" if ratio > 1 else "not-slower"
        found.append(Draw(settings, state, drawn.block, drawn.run_id, ratio))
    return found
