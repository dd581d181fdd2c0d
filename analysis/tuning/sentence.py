"""A tuning's answer in one sentence."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpt2core.spec.wording import counted, slices
from taskloom.analysis.wording import value_name

if TYPE_CHECKING:
    from taskloom.analysis.tuning.answer import Confirmed, Share, Tuning


def sentence(found: Tuning, pairs: int) -> str:
    """What is known of the best setting, and what is missing; first that most runs were disturbed, if they were. pairs:
    those of the confirmation as requested."""
    disturbed, runs, of = disturbance(found)
    first = f"Most runs{of} were disturbed ({disturbed} of {runs}). " if 2 * disturbed > runs else ""
    return f"{first}{_known(found, pairs)}"


def disturbance(found: Tuning) -> tuple[int, int, str]:
    """The disturbed runs, of how many, and which these are: those of the confirmation alone if most of them were."""
    confirmed = found.confirmed
    if confirmed is not None and confirmed.disturbed_runs > confirmed.pairs:
        return confirmed.disturbed_runs, 2 * confirmed.pairs, " of the confirmation"
    return found.disturbed_runs, found.spent_runs, ""


def _known(found: Tuning, pairs: int) -> str:
    if found.best is None:
        if found.phase == "ended":
            return "No setting has a result."
        return f"Exploring {counted(found.space.valid, 'valid setting')}: no result yet."
    name = named(found.best)
    if found.phase != "ended":
        return _progress(found, name, pairs)
    text = _confirmed(name, found.confirmed) if found.confirmed is not None else _unconfirmed(found, name)
    if found.share is None:
        return f"{text}."
    is_faster = found.confirmed is not None and found.confirmed.verdict == "faster"
    return f"{text}{' and' if is_faster else '; it is'} {_share(found.share)}."


def named(best: Mapping[str, Any]) -> str:
    """Settings in the order of the space: task, sync none, 8 threads, 2x64, fusion all."""
    sliced = {name: best[name] for name in ("batch_slice", "token_slice") if best.get(name)}
    if len(sliced) < 2:  # an automatic one has no number
        return ", ".join(value_name(name, value) for name, value in best.items())
    texts = {name: value_name(name, value) for name, value in best.items() if name not in sliced}
    first = next(name for name in best if name in sliced)
    return ", ".join(slices(sliced) if name == first else texts[name] for name in best if name in {first, *texts})


def _progress(found: Tuning, name: str, pairs: int) -> str:
    measured = sum(trial.state == "measured" for trial in found.trials)
    so_far = "" if found.best_ratio is None else f", {found.best_ratio:.2f} times as fast as the default in one run"
    if found.phase == "explore":
        return f"Exploring: {counted(measured, 'setting')} measured; the best so far is {name}{so_far}."
    if found.phase == "confirm":
        done = sum(pair.ratio is not None for pair in found.pairs)
        return f"Confirming {name}{so_far}: {done} of {counted(pairs, 'pair')}."
    done = sum(draw.state not in ("not-run", "open") for draw in found.draws)
    return f"Drawing settings at random beside {name}{so_far}: {done} of {len(found.draws)}."


def _confirmed(name: str, found: Confirmed) -> str:
    if found.ratio_low is None:
        bounds = f"{counted(found.pairs, 'pair')}"
    else:
        bounds = f"{found.ratio_low:.2f} to {found.ratio_high:.2f}, {counted(found.pairs, 'pair')}"
    times = f"{found.ratio:.2f} times as fast"
    figures = f"{times} as the default ({bounds})"
    undecided = f"It is undecided whether {name} is faster or slower than the default: it ran {times} ({bounds})"
    return {
        "faster": f"{name} is {figures}",
        "slower": f"{name} is slower than the default: {figures}",
        "same": f"{name} and the default are equivalent within the noise floor: {figures}",
    }.get(found.verdict, undecided)


def _unconfirmed(found: Tuning, name: str) -> str:
    measured = sum(trial.state == "measured" for trial in found.trials)
    why = f" ({found.missing[0]})" if found.missing else ""
    return f"{name} was the fastest in {counted(measured, 'run')} of explore, which is not confirmed{why}"


def _share(found: Share) -> str:
    sure = f"{100 * found.confidence:.0f} % confidence"
    drawn = f"{sure}; {found.slower} of {found.drawn} drawn at random after it was chosen"
    of_space = counted(found.space, "valid setting")
    return f"faster than at least {math.floor(100 * found.at_least)} % of the {of_space} ({drawn})"
