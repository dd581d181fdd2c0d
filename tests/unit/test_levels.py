from typing import Any

import numpy as np
import pytest

from taskloom.analysis.levels import levels
from taskloom.analysis.processes import Process


def measured(make_result, occasions, processes, steps, sd, seed=1):
    """Processes with planted standard deviations of occasions, processes and steps."""
    rng = np.random.default_rng(seed)
    made: list[Any] = []
    for occasion in range(occasions):
        today = rng.normal(0, sd[0])
        for _ in range(processes):
            mine = today + rng.normal(0, sd[1])
            times = [9.0, *np.exp(mine + rng.normal(0, sd[2], steps))]
            made.append(Process(len(made), make_result(times), {}, occasion=occasion))
    return made


def test_planted_components_are_found(make_result):
    found = levels(measured(make_result, 60, 8, 10, (0.03, 0.02, 0.01)))
    assert (found.occasion, found.process, found.step) == pytest.approx((0.03, 0.02, 0.01), rel=0.2)
    assert found.steps_advised == 1  # processes vary more than their steps


def test_where_steps_vary_most_more_steps_are_advised(make_result):
    found = levels(measured(make_result, 1, 200, 10, (0.0, 0.02, 0.05)), warm_steps=16)
    assert found.occasion is None
    assert found.steps_advised == pytest.approx(10, rel=0.35)  # sqrt(16) x 0.05 / 0.02


def test_what_one_process_or_one_step_cannot_say_is_null(make_result):
    one = levels([Process(1, make_result([9.0, 1.0, 1.1]), {})])
    assert one.step == pytest.approx(np.std(np.log([1.0, 1.1]), ddof=1))
    assert (one.process, one.occasion, one.steps_advised) == (None, None, None)
    assert levels([Process(i, make_result([9.0, 1.0 + i]), {}) for i in range(3)]).step is None
    with pytest.raises(ValueError):
        levels([])
