"""Calibration of a node: A/A runs show the random differences between two equal variants.

The detectable difference of a design is simulated: complete verdicts (noise floor, tests, interval, correction) on
pairs that scatter like the A/A pairs, at the upper 95 % bound of their spread.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from gpt2core.spec.result import median
from taskloom.analysis.comparison import NOISE_FLOOR, decide
from taskloom.analysis.diagnosis import diagnose
from taskloom.analysis.estimators import CONFIDENCE, FEWEST, TAIL, anytime_rows, logarithms, walsh_rows
from taskloom.analysis.processes import Process
from taskloom.analysis.rank_tests import Floats
from taskloom.analysis.reasons import Verdict

FEWEST_PAIRS = 3
POWER = 0.8
SIZES = (6, 10, 20, 50)
DIFFERENCES = (0.01, 0.02, 0.03, 0.05)
SIMULATIONS = 1000
MOST_SIMULATED = 60  # pairs; beyond that, the detectable difference falls with 1 / sqrt(pairs)


@dataclass(frozen=True)
class Detectable:
    """The smallest relative difference that is detected in four of five experiments with this number of pairs; null if
    so few pairs never detect any."""

    pairs: int
    relative: float | None


@dataclass(frozen=True)
class Power:
    """Power: probability that a comparison with this number of pairs detects a relative difference."""

    pairs: int
    difference: float
    power: float


@dataclass(frozen=True)
class Calibration:
    """Of one node by one A/A experiment. spread: standard deviation of the logarithm of a pair's ratio; spread_upper:
    its upper 95 % bound, the basis of detectable and power; verdict: result of a comparison of both halves, which
    should be no difference. false_alarms: number of the node's A/A experiments, of `comparisons`, that reported a
    difference; false_alarm_upper: the upper 95 % bound of their rate."""

    experiment_id: int
    node: str
    pairs: int
    spread: float
    median_step_s: float
    verdict: Verdict
    detectable: list[Detectable]
    spread_upper: float
    power: list[Power]
    comparisons: int
    false_alarms: int
    false_alarm_upper: float
    log_ratios: tuple[float, ...]

    def at(self, pairs: int, statements: int = 1, sequential: bool = False) -> float | None:
        """The smallest difference that a design with this number of pairs detects as one of several statements."""
        return detectable(self.log_ratios, pairs, statements, sequential=sequential)


@dataclass(frozen=True)
class CalibrationList:
    """The latest calibration of each node, by its name."""

    items: list[Calibration]


def spread_of(logs: Sequence[float]) -> float:
    """Standard deviation of log ratios of equal variants, whose mean is known to be 0."""
    return math.sqrt(math.fsum(d * d for d in logs) / len(logs))


def upper_spread(logs: Sequence[float]) -> float:
    """The upper 95 % bound of a spread (chi square)."""
    from scipy import special

    n = len(logs)
    return spread_of(logs) * math.sqrt(n / (2 * float(special.gammaincinv(n / 2, 1 - CONFIDENCE))))


def detectable(
    logs: Sequence[float],
    pairs: int,
    statements: int = 1,
    noise_floor: float = NOISE_FLOOR,
    sequential: bool = False,
) -> float | None:
    """The smallest relative difference that `pairs` pairs, as one of so many statements that are adjusted together,
    detect with a power of 80 % if they vary like these log ratios; None if they never detect any. sequential: a
    stopping rule decides the number of pairs."""
    needed = _needed(tuple(logs), pairs, statements, noise_floor, sequential)
    found = float(np.quantile(needed, POWER, method="higher"))
    return math.expm1(found) if math.isfinite(found) else None


def power(
    logs: Sequence[float], pairs: int, difference: float, statements: int = 1, noise_floor: float = NOISE_FLOOR
) -> float:
    """Probability that a difference is detected."""
    return float(np.mean(_needed(tuple(logs), pairs, statements, noise_floor, False) <= math.log1p(difference)))


@lru_cache(maxsize=64)
def _needed(logs: tuple[float, ...], pairs: int, statements: int, noise_floor: float, sequential: bool) -> Floats:
    """For each simulated experiment the smallest log ratio with the verdict `faster`.

    A shift of all pairs shifts estimate and interval alike, so no shift has to be tried: the interval must clear 0, at
    its own level and at that of the smallest p-value among `statements`, and the estimate must reach the floor.
    """
    rng, size = np.random.default_rng(0), min(pairs, MOST_SIMULATED)
    rows = _drawn(logs, rng, (SIMULATIONS, size))
    if sequential:
        centre, low = anytime_rows(rows, 2 * TAIL / max(1, statements))
    else:
        centre, low, _ = walsh_rows(rows)
        if statements > 1:
            low = np.minimum(low, walsh_rows(rows, TAIL / statements)[1])
    shrink = math.sqrt(size / pairs)
    return np.maximum(-shrink * low * (1 + 1e-9), math.log1p(noise_floor) - shrink * centre)


def _drawn(logs: tuple[float, ...], rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
    """Log ratios of equal variants: the measured ones with either sign, smoothed, and scaled to the spread's upper
    bound."""
    drawn = rng.choice(np.asarray(logs), shape) * rng.choice([-1.0, 1.0], shape)
    width = 0.5 * spread_of(logs) * len(logs) ** -0.2
    smooth = drawn + width * rng.standard_normal(shape)
    stretch = upper_spread(logs) / math.hypot(spread_of(logs), width) if width else 1.0
    return np.asarray(smooth * stretch)


def calibrate(experiment_id: int, processes: Sequence[Process]) -> Calibration | None:
    """Calibration from A/A runs in their order: every two consecutive runs are a pair. None for fewer than three pairs.
    """
    values = [process.median_step_s for process in processes]
    a, b = values[: len(values) // 2 * 2 : 2], values[1::2]
    if len(b) < FEWEST_PAIRS:
        return None
    logs = tuple((logarithms(a) - logarithms(b)).tolist())
    broken = diagnose(np.exp(logs)).broken  # a comparison of these pairs would not be called either
    calibration = Calibration(
        experiment_id=experiment_id,
        node=str(processes[0].environment.get("node", "")),
        pairs=len(logs),
        spread=spread_of(logs),
        median_step_s=median(values),
        verdict="undecided" if broken else decide(a, b, paired=True, noise_floor=NOISE_FLOOR).verdict,
        detectable=[Detectable(pairs, detectable(logs, pairs)) for pairs in SIZES],
        spread_upper=upper_spread(logs),
        power=[Power(n, difference, power(logs, n, difference)) for n in SIZES for difference in DIFFERENCES],
        comparisons=0,
        false_alarms=0,
        false_alarm_upper=1.0,
        log_ratios=logs,
    )
    return with_rate(calibration, [calibration])


def with_rate(latest: Calibration, every: Sequence[Calibration]) -> Calibration:
    """The latest calibration of a node with the false alarms of all of them (Clopper-Pearson)."""
    from scipy import special

    able = [each for each in every if each.pairs >= FEWEST]
    alarms, n = sum(each.verdict in ("faster", "slower") for each in able), len(able)
    upper = 1.0 if alarms == n else float(special.betaincinv(alarms + 1, n - alarms, CONFIDENCE))
    return replace(latest, comparisons=n, false_alarms=alarms, false_alarm_upper=upper)
