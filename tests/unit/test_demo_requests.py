"""The demo's second question can be decided although a neighbour disturbs one of its pairs."""

from __future__ import annotations

import numpy as np

from taskloom.analysis.estimators import CONFIDENCE
from taskloom.analysis.rank_tests import signed_rank_p_value
from taskloom.demo import finding_request


def test_a_pair_that_contradicts_a_little_does_not_leave_the_finding_undecided() -> None:
    repetitions = finding_request(2, None).repetitions
    assert repetitions is not None
    logs = np.linspace(0.2, 0.3, repetitions)
    logs[0] = -0.1
    assert signed_rank_p_value(logs) < 1 - CONFIDENCE


def test_repetitions_that_are_given_are_kept() -> None:
    assert finding_request(2, 1).repetitions == 1
