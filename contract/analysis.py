"""Results of analyses in answers."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from taskloom.contract.bodies import Model

AlertKind = Literal["change", "threshold"]
AlertState = Literal["suspected", "confirming", "confirmed", "dismissed", "above", "below", "within"]


class VerdictReason(Model):
    """Why a comparison has its verdict, as data."""

    kind: Literal[
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
    ] = Field(
        description="significant and equivalent decide; wide: the interval allows several verdicts; dependent: the "
        "interval does not hold, because of `findings`; adjusted: significant alone, but not among `of` statements; "
        "too-few: less than `needed`; one-process, not-interleaved, not-planned: neither interval nor test; refused: "
        "`findings` say why"
    )
    needed: int | None = Field(None, description="fewest `unit`s that can decide; null: more of them decide nothing")
    of: int | None = Field(None, description="number of statements that are decided together; null: one alone")
    unit: Literal["pairs", "processes", "occasions", "places"] | None = Field(
        None, description="what `needed` counts; of processes and occasions on each side"
    )
    findings: list[str] = Field(
        default_factory=list, description="findings under which the interval does not hold; if refused, why"
    )
    sentence: str = Field("", description="the reason in words")


class AlertSummary(Model):
    """A change to slower steps and the result of fresh runs, or runs outside the threshold of their series."""

    id: int
    kind: AlertKind = Field(
        "change", description="change: steps became slower; threshold: runs were outside their series' threshold"
    )
    run_id: int = Field(description="the first slower run, or the first of the experiment that was outside")
    mode: str = Field("train", description="mode of the slower runs: train or infer")
    state: AlertState = Field(
        description="of a change: suspected, confirming, confirmed or dismissed; of a threshold: above or below, and "
        "within once a later experiment of the series is"
    )
    ratio: float = Field(
        description="median after / before: above 1, slower; of step times, or of step time over canary where the "
        "series has canaries. Of a threshold: median step time / reference"
    )
    reason: str
    confirming_experiment_id: int | None
    raised_at: datetime
    changed_at: datetime = Field(description="when it entered this state")


class AlertPage(Model):
    """A page of alerts, newest first."""

    items: list[AlertSummary]
    next_cursor: str | None
