"""The statements of a sweep whose p-values are adjusted together, and the number of pairs that decides one of them.

docs/decisions/0021-one-family.md says which statements these are. Both numbers follow from the design alone.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from gpt2core.spec.wording import counted
from taskloom.analysis.estimators import CONFIDENCE, FEWEST, Test, smallest_p_value


@dataclass(frozen=True)
class Family:
    """comparisons: at single places; pooled: ratios over these places only."""

    comparisons: int
    pooled: int = 0

    @property
    def size(self) -> int:
        return self.comparisons + self.pooled

    def __str__(self) -> str:
        counts = (counted(self.comparisons, "comparison"), counted(self.pooled, "pooled ratio"))
        return " and ".join(itertools.compress(counts, (self.comparisons, self.pooled)))

    def smallest_p(self, n: int, test: Test = "signed-rank") -> float:
        """Smallest adjusted p-value of a comparison of n pairs (two samples: n a side) while no other statement is
        significant. From 0.05 on, such a comparison is never decided alone."""
        return min(1.0, self.size * smallest_p_value(test, n)) if n >= FEWEST else 1.0

    def needed(self, test: Test = "signed-rank") -> int:
        """Fewest pairs (two samples: a side) that can decide one comparison alone."""
        return next(n for n in itertools.count(FEWEST) if self.smallest_p(n, test) < 1 - CONFIDENCE)


def decidable(low: float | None, n: int, test: Test, statements: int) -> bool:
    """Whether a ratio of n pairs (two samples: n a side) can be decided among this number of statements. low: lower
    bound of its interval."""
    return low is not None and statements * smallest_p_value(test, n) < 1 - CONFIDENCE
