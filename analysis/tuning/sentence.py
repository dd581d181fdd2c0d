"""A tuning's answer in one sentence."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gpt2core.spec.wording import counted
from taskloom.analysis.wording import settings

if TYPE_CHECKING:
    from taskloom.analysis.tuning.answer import Confirmed, Share, Tuning


def sentence(found: Tuning, pairs: int) -> str:
    """What is known of the best setting, and what is missing. pairs: those of the confirmation as requested."""
    if found.best is None:
        if found.phase == "ended":
            return "No setting has a result."
        return f"Exploring {counted(found.space.valid, 'valid setting')}: no result yet."
    name = settings(found.best) or "the base"
    if found.phase != "ended":
        return _progress(found, name, pairs)
    text = _confirmed(name, found.confirmed) if found.confirmed is not None else _unconfirmed(found, name)
    if found.share is None:
        return f"{text}."
    is_faster = found.confirmed is not None and found.confirmed.verdict == "faster"
    return f"{text}{' and' if is_faster else '; it is'} {_share(found.share)}."


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
    figures = f"{found.ratio:.2f} times as fast as the default ({bounds})"
    return {
        "faster": f"{name} is {figures}",
        "slower": f"{name} is slower than the default: {figures}",
        "same": f"{name} and the default are equivalent within the noise floor: {figures}",
    }.get(found.verdict, f"It is undecided whether {name} is faster than the default: {figures}")


def _unconfirmed(found: Tuning, name: str) -> str:
    measured = sum(trial.state == "measured" for trial in found.trials)
    why = f" ({found.missing[0]})" if found.missing else ""
    return f"{name} was the fastest in {counted(measured, 'run')} of explore, which is not confirmed{why}"


def _share(found: Share) -> str:
    sure = f"{100 * found.confidence:.0f} % confidence"
    drawn = f"{sure}; {found.slower} of {found.drawn} drawn at random after it was chosen"
    of_space = counted(found.space, "valid setting")
    return f"faster than at least {math.floor(100 * found.at_least)} % of the {of_space} ({drawn})"
