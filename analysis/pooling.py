"""One ratio from the pairs of several strata (places or occasions) that may differ. It is about strata like them, or
only about these.

FEWEST strata or more are a sample: each counts once, with its own estimate (a mixed model whose random effect has any
symmetric distribution). With fewer, the answer is not about others: the interval is for the mean over these strata,
from the variances within each (Welch 1947, Satterthwaite 1946), and the answer says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from taskloom.analysis.diagnosis import diagnose
from taskloom.analysis.estimators import FEWEST, TAIL, Estimate, anytime, of_logs, walsh
from taskloom.analysis.rank_tests import Floats

Strata = Literal["places", "occasions"]
FEWEST_IN_STRATUM = 3  # pairs, where strata are fewer than a sample


@dataclass(frozen=True)
class Pooled:
    """estimate: its unit is the stratum if strata are a sample, else the pair. scope: the population that it describes.
    between: standard deviation of the strata's own log ratios beyond what their pairs explain. broken: findings within
    the strata under which the interval does not hold; none if strata are the sample."""

    estimate: Estimate
    scope: str
    between: float | None
    broken: tuple[str, ...] = ()


def pool(strata: Sequence[Floats], kind: Strata, sequential: bool = False, tail: float = TAIL) -> Pooled:
    """Pool the log ratios of each stratum's pairs. Raises ValueError for none. sequential: as in comparison.compare.
    tail: what the interval leaves out at each end."""
    if not strata or not all(len(logs) for logs in strata):
        raise ValueError("a stratum without pairs")
    between, only = _between(strata), f"these {len(strata)} {kind} only"
    broken = tuple(dict.fromkeys(text for logs in strata for text in diagnose(np.exp(logs)).broken))
    if len(strata) == 1:
        alone = anytime(strata[0], tail=tail) if sequential else of_logs(strata[0], tail=tail)
        return Pooled(alone, f"this {kind[:-1]} only", None, broken)
    if sequential:
        return Pooled(anytime(np.concatenate(strata), tail=tail), only, between, broken)
    if len(strata) >= FEWEST:
        centres = np.array([walsh(logs)[0] for logs in strata])
        return Pooled(of_logs(centres, kind, tail), f"{kind} like these {len(strata)}", between)
    return Pooled(_of_these(strata, tail), only, between, broken)


def _of_these(strata: Sequence[Floats], tail: float) -> Estimate:
    """The mean over the strata. Its p-value is the larger one of two tests: that none of the strata has a difference
    (signed ranks of all pairs), and that their mean is 0."""
    from scipy import special

    together = np.concatenate(strata)
    centre = float(np.mean([logs.mean() for logs in strata]))
    found = replace(of_logs(together), value=math.exp(centre), low=None, high=None)
    if len(together) < FEWEST or min(map(len, strata)) < FEWEST_IN_STRATUM:
        return found
    error, freedom = _error(strata)
    half = float(special.stdtrit(freedom, 1 - tail)) * error
    p_mean = 2 * float(special.stdtr(freedom, -abs(centre) / error)) if error else float(centre == 0)
    p_value = None if found.p_value is None else max(found.p_value, p_mean)
    return replace(found, low=math.exp(centre - half), high=math.exp(centre + half), p_value=p_value)


def _error(strata: Sequence[Floats]) -> tuple[float, float]:
    """Standard error of the mean over strata of FEWEST_IN_STRATUM pairs or more, and its degrees of freedom. With a
    variance of two pairs in one stratum and many pairs in another, an interval would cover 87 to 93 %."""
    degrees = np.array([len(logs) - 1 for logs in strata])
    variances = np.array([logs.var(ddof=1) / len(logs) for logs in strata])
    total = float(variances.sum())
    if total <= 1e-20 * len(strata):  # constant but for rounding
        return 0.0, float(degrees.sum())
    return math.sqrt(total) / len(strata), float(total**2 / (variances**2 / degrees).sum())


def _between(strata: Sequence[Floats]) -> float | None:
    if len(strata) < 2 or min(map(len, strata)) < 2:
        return None
    within = np.mean([logs.var(ddof=1) / len(logs) for logs in strata])
    return math.sqrt(max(0.0, float(np.var([logs.mean() for logs in strata], ddof=1) - within)))
