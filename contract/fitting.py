"""Whether a worker can execute a block of runs: the one rule of claims, of reasons for waiting, and of provisioners.

The claim's SQL states it once more, since it chooses among all queued runs; a test compares both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

Label = tuple[str, str]
Lack = Literal["no-label", "too-few-cores", "other-cores", "too-little-memory", "too-little-time"]
JOB_RESERVE_S = 120.0  # part of a job's walltime for the worker's start and its reserve at the end


@dataclass(frozen=True)
class Need:
    """What a block of runs needs of a worker. cores: of its widest run; pinned_cores: cores that its runs name."""

    labels: frozenset[Label]
    cores: int
    pinned_cores: frozenset[int]
    memory_bytes: int
    timeout_s: float


@dataclass(frozen=True)
class Offer:
    """What a worker offers. remaining_s: time that is left for runs; infinite without a limit."""

    labels: frozenset[Label]
    cores: frozenset[int]
    memory_bytes: int
    remaining_s: float = math.inf


# In the order in which a reason names the first unmet one.
REQUIREMENTS: Mapping[Lack, Callable[[Need, Offer], bool]] = {
    "no-label": lambda need, offer: need.labels <= offer.labels,
    "too-few-cores": lambda need, offer: need.cores <= len(offer.cores),
    "other-cores": lambda need, offer: need.pinned_cores <= offer.cores,
    "too-little-memory": lambda need, offer: need.memory_bytes <= offer.memory_bytes,
    "too-little-time": lambda need, offer: need.timeout_s <= offer.remaining_s,
}


def lacks(need: Need, offer: Offer) -> Lack | None:
    """The first requirement that the worker does not meet; None if it fits."""
    return next((lack for lack, meets in REQUIREMENTS.items() if not meets(need, offer)), None)
