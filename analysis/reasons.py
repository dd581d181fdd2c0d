"""Why a comparison has its verdict, as data. `sentences.py` puts it into words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from taskloom.analysis.estimators import Unit

Verdict = Literal["faster", "slower", "same", "undecided", "refused"]
Kind = Literal[
    "significant",
    "equivalent",
    "wide",
    "dependent",
    "adjusted",
    "too-few",
    "too-few-in-family",
    "too-few-on-an-occasion",
    "too-few-at-a-place",
    "one-process",
    "not-interleaved",
    "not-planned",
    "refused",
]


@dataclass(frozen=True)
class Reason:
    """Why a comparison has its verdict.

    kind: significant and equivalent decide; wide: the interval allows several verdicts; dependent: the interval does
    not hold, because of `findings`; adjusted: significant alone, but not as one of `of` statements; too-few: fewer than
    `needed` `unit`s in all, to be one of `of` statements, on an occasion or at a place; one-process,
    not-interleaved, not-planned (a stopping rule without pairs): no interval and no test; refused: `findings` say why.
    findings: always those under which an interval does not hold. sentence: the reason in words.
    """

    kind: Kind
    needed: int | None = None
    of: int | None = None
    unit: Unit | None = None
    findings: list[str] = field(default_factory=list)
    sentence: str = ""
