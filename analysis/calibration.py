"""What a node can see: A/A runs, alike in everything, show how much two equal variants differ there by chance alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from taskloom.analysis.comparison import NOISE_FLOOR, Verdict, decide
from taskloom.analysis.processes import Process
from taskloom.analysis.statistics import CONFIDENCE

FEWEST_PAIRS = 3
POWER = 0.8
SIGNED_RANK_EFFICIENCY = 3 / math.pi  # of the signed rank test against the t test, for normal differences
SIZES = (6, 10, 20, 50)


@dataclass(frozen=True)
class Detectable:
    """With so many pairs of runs, the smallest relative difference that is found in four of five experiments."""

    pairs: int
    relative: float


@dataclass(frozen=True)
class Calibration:
    """Of one node by one A/A experiment. spread: standard deviation of the logarithm of a pair's ratio; verdict: what
    a comparison says of both halves, which should be nothing."""

    experiment_id: int
    node: str
    pairs: int
    spread: float
    median_step_s: float
    verdict: Verdict
    detectable: list[Detectable]

    def at(self, pairs: int) -> float:
        return detectable(self.spread, pairs)


def detectable(spread: float, pairs: int) -> float:
    """The smallest relative difference that `pairs` pairs find with a power of 80 % at the 5 % level.

    Source: the sample size formula of the paired t test, with the signed rank test's efficiency (Lehmann 2006).
    """
    from scipy import stats

    effective = pairs * SIGNED_RANK_EFFICIENCY
    t = stats.t(max(effective - 1, 1))
    return math.expm1(float(t.ppf((1 + CONFIDENCE) / 2) + t.ppf(POWER)) * spread / math.sqrt(effective))


def calibrate(experiment_id: int, processes: Sequence[Process]) -> Calibration | None:
    """From equal runs in the order in which they ran: each two neighbours are a pair. None for fewer than three pairs.
    """
    values = [process.median_step_s for process in processes]
    a, b = values[: len(values) // 2 * 2 : 2], values[1::2]
    if len(b) < FEWEST_PAIRS:
        return None
    logs = [math.log(x / y) for x, y in zip(a, b, strict=True)]
    spread = math.sqrt(math.fsum(d * d for d in logs) / len(logs))  # equal variants: the mean is known to be 0
    return Calibration(
        experiment_id=experiment_id,
        node=str(processes[0].environment.get("node", "")),
        pairs=len(logs),
        spread=spread,
        median_step_s=sorted(values)[len(values) // 2],
        verdict=decide(a, b, paired=True, noise_floor=NOISE_FLOOR).verdict,
        detectable=[Detectable(pairs, detectable(spread, pairs)) for pairs in SIZES],
    )
