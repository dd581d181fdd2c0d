"""Why a comparison has its verdict, as data. `sentences.py` puts it into words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from taskloom.analysis.estimators import Unit
from taskloom.analysis.meaning import says

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
    """Why a comparison has its verdict."""

    kind: Kind = field(
        metadata=says(
            "significant and equivalent decide; wide: the interval allows several verdicts; dependent: it does not "
            "hold, "
            "because of `findings`; adjusted: significant alone, but not among `of` statements; too-few: less than "
            "`needed`; "
            "one-process, not-interleaved, not-planned: neither interval nor test; refused: `findings` say why"
        ),
    )
    needed: int | None = field(
        default=None,
        metadata=says("fewest `unit`s that can decide; null: more of them decide nothing"),
    )
    of: int | None = field(
        default=None,
        metadata=says("number of statements that are decided together; null: one alone"),
    )
    unit: Unit | None = field(
        default=None,
        metadata=says("what `needed` counts; of processes and occasions on each side"),
    )
    findings: list[str] = field(
        default_factory=list,
        metadata=says("findings under which the interval does not hold; if refused, why"),
    )
    sentence: str = field(default="", metadata=says("the reason in words"))
