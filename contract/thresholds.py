"""Thresholds of series: a reference for the step time, and how far from it a measured one may be."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from taskloom.contract.bodies import Model, Request

UPPER = "percent above the reference from which on a step time is too long; null: no limit"
LOWER = "percent below the reference, as a negative number, from which on a step time is too short; null: no limit"


class ThresholdRequest(Request):
    """A threshold of a series; at least one of its limits."""

    reference_s: float = Field(gt=0, allow_inf_nan=False, description="expected median step time, seconds")
    lower: float | None = Field(None, ge=-100, le=0, description=LOWER)
    upper: float | None = Field(None, ge=0, allow_inf_nan=False, description=UPPER)


class SeriesThreshold(Model):
    """The threshold of a series."""

    reference_s: float = Field(description="expected median step time, seconds")
    lower: float | None = Field(description=LOWER)
    upper: float | None = Field(description=UPPER)
    set_at: datetime = Field(description="when it was set")
    set_by: str = Field(description="who set it: key:ID, user:NAME, or local (a server without keys)")
