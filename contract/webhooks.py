"""Webhooks: messages about events, and their signatures."""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from taskloom.contract.analysis import AlertSummary
from taskloom.contract.bodies import Model, Request
from taskloom.contract.experiments import ExperimentSummary

EventName = Literal["verdict", "alert", "tuning.confirmed"]
DeliveryState = Literal["waiting", "delivered", "given-up"]
SIGNATURE, DELIVERY = "Taskloom-Signature", "Taskloom-Delivery"
SIGNED = re.compile(r"t=([0-9]{1,12}),v1=([0-9a-f]{64})")


class WebhookRequest(Request):
    """Request for a new webhook."""

    url: str = Field(
        min_length=1, max_length=2000, pattern=r"^https?://[!-~]+$",
        description="a URL below one that the operator allowed (TASKLOOM_WEBHOOK_TARGETS)",
    )  # fmt: skip
    events: list[EventName] = Field(
        min_length=1, max_length=3,
        description="verdict: an experiment has ended and was compared; alert: a slowdown was found, or runs were "
        "outside their series' threshold, or the state of such an alert has changed; tuning.confirmed: a tuning has "
        "ended with a confirmed ratio",
    )  # fmt: skip


class WebhookSummary(Model):
    """A webhook in a list, without its secret."""

    id: int
    url: str
    events: list[EventName]
    owner: str = Field(description="who created it: key:ID, or local; it receives messages only while the key is valid")
    created_at: datetime


class WebhookCreated(WebhookSummary):
    """A new webhook. `secret` is shown here and never again."""

    secret: str = Field(description=f"key of the HMAC-SHA-256 in {SIGNATURE}")


class WebhookPage(Model):
    """A page of webhooks, oldest first."""

    items: list[WebhookSummary]
    next_cursor: str | None


class DeliverySummary(Model):
    """A message to a webhook, and the state of its delivery."""

    id: int = Field(description=f"{DELIVERY}: the same whenever it is sent again")
    event: EventName
    state: DeliveryState
    tries: int
    created_at: datetime
    next_at: datetime | None = Field(description="when it is sent again; null unless it waits")
    delivered_at: datetime | None
    status: int | None = Field(description="HTTP status of the last answer; null if there was none")
    error: str | None = Field(description="why the last try failed or the message was given up")


class DeliveryPage(Model):
    """A page of deliveries, newest first."""

    items: list[DeliverySummary]
    next_cursor: str | None


class VerdictKnown(Model):
    """The body of a message on an experiment's verdict."""

    event: Literal["verdict"] = "verdict"
    experiment: ExperimentSummary


class AlertChanged(Model):
    """The body of a message on an alert that was raised or has changed."""

    event: Literal["alert"] = "alert"
    alert: AlertSummary


class TuningConfirmed(Model):
    """The body of a message on a tuning that has ended with a confirmed ratio."""

    event: Literal["tuning.confirmed"] = "tuning.confirmed"
    experiment: ExperimentSummary
    best: dict[str, Any] = Field(description="the settings of the winner")
    base: dict[str, Any] = Field(description="the request's base with these settings")
    ratio: float = Field(description="step time of the default / that of the winner")
    ratio_low: float | None
    ratio_high: float | None
    verdict: str
    pairs: int
    beats_at_least: float | None = Field(description="lower bound of the share of the valid settings that it beats")
    sentence: str


def signature(secret: str, at_s: int, body: bytes) -> str:
    """The header of a message sent at an instant: t=SECONDS,v1=HMAC-SHA-256 of SECONDS.BODY."""
    digest = hmac.new(secret.encode(), f"{at_s}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={at_s},v1={digest}"


def is_genuine(secret: str, header: str, body: bytes, most_age_s: float = 300.0, now_s: float | None = None) -> bool:
    """Whether a message was signed with the secret recently; an older one may be a replay."""
    found = SIGNED.fullmatch(header)
    if found is None or abs((time.time() if now_s is None else now_s) - int(found[1])) > most_age_s:
        return False
    return hmac.compare_digest(header, signature(secret, int(found[1]), body))
