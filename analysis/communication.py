"""What the ranks' exchanges took, for each variant with several ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean

from gpt2core.spec.result import EXCHANGE_SIZES, EXCHANGE_TIMES
from taskloom.analysis.meaning import says
from taskloom.analysis.processes import Process
from taskloom.analysis.variants import Group, Variant, by_variant, variant_of

MEANS = (*EXCHANGE_TIMES, *EXCHANGE_SIZES)


@dataclass(frozen=True)
class RankCommunication:
    """Exchanges of one rank in a timed step: the mean over the runs of a variant. Seconds and bytes."""

    rank: int = field(metadata=says("number of the rank, from 0"))
    calls_s: float = field(metadata=says("in calls of the MPI library, summed over threads, seconds a step"))
    in_flight_s: float = field(metadata=says("while any exchange is in flight, seconds a step"))
    exposed_s: float = field(
        metadata=says("for which the threads wait for an exchange with no other task ready, seconds a step")
    )
    bytes_sent: float = field(metadata=says("sizes of the messages to other ranks, bytes a step"))
    bytes_received: float = field(metadata=says("sizes of the messages from other ranks, bytes a step"))


@dataclass(frozen=True)
class CommunicationRow:
    """Exchanges between the ranks of one variant."""

    variant: Variant
    ranks: list[RankCommunication] = field(metadata=says("each rank"))
    hidden: float | None = field(
        metadata=says("share of the ranks' time in flight that is not exposed; null: nothing was in flight")
    )


def communication(processes: Sequence[Process]) -> list[CommunicationRow]:
    """A row for each variant with several ranks, in the order of every table."""
    return [_row(group) for group in by_variant(processes) if all(process.communication for process in group)]


def _row(group: Group) -> CommunicationRow:
    ranks = [
        RankCommunication(number, **{name: fmean(each[name] for each in runs) for name in MEANS})
        for number, runs in enumerate(zip(*(process.communication for process in group), strict=False))
    ]
    in_flight_s = math.fsum(rank.in_flight_s for rank in ranks)
    exposed_s = math.fsum(min(rank.exposed_s, rank.in_flight_s) for rank in ranks)
    return CommunicationRow(variant_of(group), ranks, 1 - exposed_s / in_flight_s if in_flight_s else None)
