"""The share of a space that a setting is faster than, from draws after it was chosen."""

from __future__ import annotations

CONFIDENCE = 0.95


def beats_at_least(slower: int, drawn: int, confidence: float = CONFIDENCE) -> float:
    """Lower bound of the probability that a setting drawn at random is slower, if `slower` of `drawn` were.

    Source: Clopper & Pearson 1934: the quantile of Beta(slower, drawn - slower + 1).
    """
    if not slower:
        return 0.0
    from scipy.stats import beta

    return float(beta.ppf(1 - confidence, slower, drawn - slower + 1))
