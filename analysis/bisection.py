"""Bisection of a difference between two commits: which of them a commit between them resembles, by paired blocks.

Intervals are confidence sequences, so blocks may be added until a commit is decided.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from gpt2core.spec.wording import counted
from taskloom.analysis.diagnosis import diagnose
from taskloom.analysis.estimators import Estimate, anytime, logarithms
from taskloom.analysis.rank_tests import Floats

Side = Literal["good", "bad", "undecided"]
Blocks = Mapping[int, float]  # median step time of a trainer, seconds, by block
FEWEST_BLOCKS = 7  # that can decide; tests/unit/test_bisection.py


@dataclass(frozen=True)
class Decision:
    """Whether a commit resembles GOOD or BAD. ratio: its step time / that of GOOD, with a 95 % confidence sequence; its
    bounds are null for too few blocks and for blocks that are not independent."""

    side: Side
    ratio: float | None
    low: float | None
    high: float | None
    blocks: int
    reason: str


def compare(good: Blocks, bad: Blocks) -> Decision:
    """Whether BAD differs from GOOD: the side is bad if it does, otherwise undecided."""
    pairs = sorted(good.keys() & bad.keys())
    return _decision(_logs(bad, pairs) - _logs(good, pairs), None)


def judge(good: Blocks, commit: Blocks, bad: Blocks) -> Decision:
    """The side of a commit: it is compared with the geometric mean of GOOD and BAD of the same block."""
    blocks = sorted(good.keys() & commit.keys() & bad.keys())
    of_good, of_commit, of_bad = (_logs(side, blocks) for side in (good, commit, bad))
    slower = 1 if len(blocks) == 0 or np.median(of_bad - of_good) > 0 else -1
    return _decision(of_commit - of_good, slower * (of_commit - (of_good + of_bad) / 2))


def _decision(to_good: Floats, beyond: Floats | None) -> Decision:
    """beyond: logarithms that are positive nearer BAD; None: whether there is a difference at all."""
    n = len(to_good)
    if n == 0:
        return Decision("undecided", None, None, None, 0, "no block is complete")
    ratio, decisive = anytime(to_good), anytime(to_good if beyond is None else beyond)
    broken = diagnose(np.exp(to_good if beyond is None else beyond)).broken
    if broken:
        return Decision("undecided", ratio.value, None, None, n, f"blocks are not independent: {', '.join(broken)}")
    side = _side(decisive, beyond is None)
    reason = f"{counted(n, 'block')}"
    if side == "undecided":
        what = "equal step times" if beyond is None else "halfway between GOOD and BAD"
        reason += f" do not exclude {what}"
    return Decision(side, ratio.value, ratio.low, ratio.high, n, reason)


def _side(found: Estimate, either: bool) -> Side:
    """either: a difference in either direction is bad."""
    if found.low is not None and found.low > 1:
        return "bad"
    if found.high is not None and found.high < 1:
        return "bad" if either else "good"
    return "undecided"


def _logs(side: Blocks, blocks: Sequence[int]) -> Floats:
    return logarithms([side[block] for block in blocks])


def search(length: int, judged: Callable[[int], Side]) -> tuple[int, int]:
    """The last good and the first bad of commits 0 to length - 1, of which the first is good and the last is bad. They
    are neighbours unless all commits between them are undecided. judged: the side of a commit."""
    low, high, undecided = 0, length - 1, set[int]()
    while between := [place for place in range(low + 1, high) if place not in undecided]:
        middle = min(between, key=lambda place: abs(2 * place - low - high))
        side = judged(middle)
        if side == "bad":
            high = middle
        elif side == "good":
            low = middle
        else:
            undecided.add(middle)
    return low, high
