"""The interval of an estimate that is expected to have one."""

from __future__ import annotations

from taskloom.analysis.estimators import Estimate
from tests.support.present import present


def interval(found: Estimate) -> tuple[float, float]:
    """Both bounds. Raises AssertionError if one is None."""
    return present(found.low), present(found.high)
