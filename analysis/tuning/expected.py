"""What the runs of explore say of each setting together: its expected time, of which the smallest is chosen.

A single run is lucky or not, and so is the run of the default beside it. Where equal runs scatter as far as settings
differ, the best single run is mostly luck. So log(time) is modelled as the default's, or a mean plus an effect of each
value of each setting and the setting's own deviation, plus the scatter of the block and of the run. The variances of
these four follow from the runs: the default, which runs in each block, shows how far equal runs scatter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from taskloom.analysis.tuning.space import Point

Matrix = NDArray[np.float64]
ROUNDS, CLOSE = 100, 1e-3  # of the variances: at most so many, until none changes by more than this share
FITTED = 400  # runs from which variances are found; the time grows with the third power
SMALLEST = 1e-9  # of a variance, beside that of all values: keeps equal values solvable


@dataclass(frozen=True)
class Seen:
    """A run of explore: its block, its point of the space or None for the default, and the logarithm of its time."""

    block: int
    point: int | None
    log_s: float


class _Model:
    """The runs as a linear mixed model: means of trials and of the default, and the covariance of each random part."""

    def __init__(self, points: Sequence[Point], runs: Sequence[Seen]) -> None:
        self.y = np.array([run.log_s for run in runs])
        number = np.array([-1 if run.point is None else run.point for run in runs])
        values = np.array([points[max(at, 0)] for at in number])
        block = np.array([run.block for run in runs])
        trial = number >= 0
        both = trial[:, None] & trial
        shared = sum(column[:, None] == column for column in values.T) / values.shape[1]
        self.of_settings = [both * shared, both * (number[:, None] == number)]
        parts = [*self.of_settings, block[:, None] == block, np.eye(len(runs))]
        self.parts: list[Matrix] = [part.astype(np.float64) for part in parts]
        kinds = [trial, ~trial] if not trial.all() else [trial]
        self.fixed = np.stack(kinds, axis=1).astype(np.float64)

    def solved(self, variances: Matrix) -> tuple[Matrix, Matrix, Matrix]:
        """The inverse of the covariance, the means, and what they leave of y, times the inverse."""
        total = sum(size * part for size, part in zip(variances, self.parts, strict=True))
        inverse = np.linalg.inv(total)
        weighed = inverse @ self.fixed
        means = np.linalg.solve(self.fixed.T @ weighed, weighed.T @ self.y)
        return inverse, means, inverse @ (self.y - self.fixed @ means)

    def variances(self) -> Matrix:
        """Those of greatest likelihood, by the minorisation of Zhou et al. 2019, "MM algorithms for variance components
        models"."""
        least = SMALLEST * max(float(self.y.var()), SMALLEST)
        found = np.full(len(self.parts), max(float(self.y.var()) / len(self.parts), least))
        for _ in range(ROUNDS):
            inverse, _, left = self.solved(found)
            fit = np.maximum([left @ part @ left for part in self.parts], 0.0)  # rounding may make a small one negative
            trace = np.maximum([(inverse * part).sum() for part in self.parts], SMALLEST)
            before, found = found, np.maximum(found * np.sqrt(fit / trace), least)
            if np.all(np.abs(found - before) <= CLOSE * before):
                break
        return found


def expected(points: Sequence[Point], runs: Sequence[Seen]) -> dict[int, float]:
    """The expected logarithm of each point's time over the default's (over 1 s if that has no run), of points that ran,
    in the order of their first runs: best linear unbiased predictors. points: of the space, by their numbers."""
    first: dict[int, int] = {}
    for at, run in enumerate(runs):
        if run.point is not None:
            first.setdefault(run.point, at)
    if not first:
        return {}
    variances, model = _Model(points, runs[:FITTED]).variances(), _Model(points, runs)
    _, means, left = model.solved(variances)
    found = means[0] - means[1:].sum()
    for size, part in zip(variances, model.of_settings, strict=False):
        found = found + size * (part @ left)
    return {point: float(found[at]) for point, at in first.items()}
