"""Confirmed settings of tunings, kept for each problem and machine."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from taskloom.contract.bodies import Model


class TunedSetting(Model):
    """The setting that the newest tuning of a problem on a machine has confirmed to be faster than the default."""

    experiment_id: int = Field(description="the tuning")
    confirmed_at: datetime = Field(description="end of the tuning")
    node: str
    machine: dict[str, Any] = Field(description="fingerprint; on a node with another one the setting was not tuned")
    changed: list[str] = Field(
        default_factory=list,
        description="entries of the fingerprint that the node's newest result has otherwise: tune again",
    )
    problem: dict[str, Any] = Field(description="settings of the network and its shape")
    settings: dict[str, Any]
    ratio: float = Field(description="step time of the default / that of the setting")
    ratio_low: float | None
    ratio_high: float | None
    pairs: int
    beats_at_least: float | None = Field(description="lower bound of the share of the space that it beats")
    sentence: str


class TunedSettingPage(Model):
    """Kept settings, newest first."""

    items: list[TunedSetting]
    next_cursor: str | None
