"""Change points of a series: where its level changes, by ranks, apart from drift and autocorrelation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from gpt2core.spec.result import median
from taskloom.analysis.comparison import NOISE_FLOOR
from taskloom.analysis.rank_tests import Floats

MIN_SEGMENT = 4  # values on each side of a change
PENALTY = 3.0  # x log n, on ranks; tests/unit/test_history.py has the error rates
MOST_RHO = 0.98


def change_points(values: Sequence[float], noise_floor: float = NOISE_FLOOR) -> list[int]:
    """Index at which each new level begins; levels within the noise floor of each other are merged.

    The ranks are segmented optimally, with a penalty for each change. Ranks give an outlier no more weight than another
    run. Each segment is then segmented by its own ranks, because a large change hides small ones in the ranks of all
    runs. Autocorrelation increases the penalty. A change that a line fits equally well is a drift and is dropped.
    Sources: Killick, Fearnhead & Eckley 2012; Truong, Oudre & Vayatis 2020 (ruptures); Romano et al. 2022 (AR(1)).
    """
    found = _steps_only(np.log(np.asarray(values, np.float64)), _segments(values))
    while found:
        steps = [abs(math.log(_step(values, found, i))) for i in range(len(found))]
        smallest = min(range(len(found)), key=steps.__getitem__)
        if steps[smallest] >= math.log(1 + noise_floor):
            break
        del found[smallest]
    return found


def _segments(values: Sequence[float]) -> list[int]:
    n = len(values)
    if n < 2 * MIN_SEGMENT or len(set(values)) == 1:
        return []
    import ruptures  # loading takes more than a second
    from scipy import stats

    ranks = (stats.rankdata(values) - (n + 1) / 2) / (n / math.sqrt(12))  # variance 1
    search = ruptures.KernelCPD(kernel="linear", min_size=MIN_SEGMENT).fit(np.asarray(ranks).reshape(-1, 1))
    rho = autocorrelation(ranks, search)
    penalty = PENALTY * math.log(n) * (1 + rho) / (1 - rho)  # the long-run variance is this multiple of the variance
    bounds = [0, *(int(index) for index in search.predict(pen=penalty))]
    if len(bounds) == 2:
        return []
    inner = [low + index for low, high in pairwise(bounds) for index in _segments(values[low:high])]
    return sorted([*bounds[1:-1], *inner])


def autocorrelation(values: Floats, search: Any) -> float:
    """Autocorrelation of neighbours, from 0 to MOST_RHO, after the removal of changes.

    It is estimated around the best one, two and three changes, and the smallest estimate counts, so that changes do not
    count as autocorrelation. Fitting k changes reduces the estimate; k (k + 1) / n corrects that.

    search: a fitted segmentation, which returns the best positions for a number of changes.
    """
    n = len(values)
    found = [MOST_RHO]
    for changes in (1, 2, 3):
        if n < (changes + 1) * MIN_SEGMENT:
            break
        bounds = [0, *search.predict(n_bkps=changes)]
        rest = np.concatenate([values[low:high] - values[low:high].mean() for low, high in pairwise(bounds)])
        total = float((rest**2).sum())
        if total == 0:
            return 0.0
        found.append(float((rest[1:] * rest[:-1]).sum()) / total + changes * (changes + 1) / n)
    return max(min(found), 0.0)


def _steps_only(logs: Floats, found: list[int]) -> list[int]:
    """The changes that two levels fit better than one line does."""
    kept, i = list(found), 0
    while i < len(kept):
        low, middle, high = ([0, *kept][i], kept[i], [*kept, len(logs)][i + 1])
        before, after = _clipped(logs[low:middle]), _clipped(logs[middle:high])
        both, at = np.concatenate([before, after]), np.arange(high - low)
        line = float(((both - np.polyval(np.polyfit(at, both, 1), at)) ** 2).sum())
        levels = float(((before - before.mean()) ** 2).sum() + ((after - after.mean()) ** 2).sum())
        if line <= levels:
            del kept[i]
            i = 0
        else:
            i += 1
    return kept


def _clipped(logs: Floats) -> Floats:
    """Values with outliers moved to three standard deviations, estimated from the median absolute deviation."""
    centre = np.median(logs)
    reach = 3 * 1.4826 * np.median(np.abs(logs - centre))
    return np.asarray(np.clip(logs, centre - reach, centre + reach))


def _step(values: Sequence[float], found: Sequence[int], i: int) -> float:
    """Level after the i-th change / level before it."""
    bounds = [0, *found, len(values)]
    return median(values[bounds[i + 1] : bounds[i + 2]]) / median(values[bounds[i] : bounds[i + 1]])
