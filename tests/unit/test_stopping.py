import math

import numpy as np
import pytest

from taskloom.analysis.stopping import Watched, half_width, judge, ratio_half_width
from tests.support.present import present

NARROW = [1.0, 1.01, 1.02, 1.03, 1.04, 1.05, 1.025]  # [1, 1.05] around 1.025
WIDE = [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.25]


def alone(values):
    """A variant of an experiment without an axis."""
    return Watched({}, dict(enumerate(values)))


def both(fork, task):
    return [Watched({"scheduler": name}, dict(enumerate(values))) for name, values in (("f", fork), ("t", task))]


def test_the_half_width_is_that_of_the_confidence_sequence():
    assert half_width(NARROW) == pytest.approx(0.025 / 1.025)
    assert half_width(NARROW[:6]) is None


@pytest.mark.parametrize(
    ("values", "repetitions", "spent_s", "reason"),
    [
        (NARROW, 7, 60.0, "narrow-enough"),
        (WIDE, 7, 60.0, None),
        (NARROW[:3], 3, 30.0, None),
        (WIDE, 20, 60.0, "max-repetitions"),
        (WIDE, 7, 90.0, "budget"),  # another block would take 13 s more
        (WIDE, 7, 85.0, None),
        ([], 7, 60.0, "no-results"),
    ],
)
def test_when_it_stops(values, repetitions, spent_s, reason):
    found = judge([alone(values)], repetitions, spent_s, rel_ci=0.03, max_repetitions=20, budget_s=100.0)
    assert (found.reason, found.repetitions, found.metric) == (reason, repetitions, "median_step_s")


def test_with_an_axis_the_ratio_is_watched_not_the_medians():
    """If the host's speed changes from block to block, the intervals of medians become wider and those of ratios do
    not."""
    weather = np.random.default_rng(0).choice([1.0, 1.2], 12)
    noise = np.random.default_rng(1).normal(1, 0.002, (2, 12))
    watched = both(list(weather * noise[0]), list(0.8 * weather * noise[1]))
    found = judge(watched, 12, 1.0, rel_ci=0.01, max_repetitions=20, budget_s=None)
    assert (found.reason, found.metric) == ("narrow-enough", "ratio")
    declared = judge(watched, 12, 1.0, 0.01, 20, None, declared="median_step_s")
    assert (declared.reason, present(declared.rel_ci) > 0.05) == (None, True)


def test_only_blocks_in_which_both_ran_count():
    a, b = dict(enumerate(NARROW)), {i: s / 2 for i, s in enumerate(NARROW)}
    assert ratio_half_width(a, b) == pytest.approx(0)
    del b[3]
    assert ratio_half_width(a, b) is None


def test_with_a_question_only_its_ratio_counts():
    wide = [s * (1 + 0.1 * (i % 2)) for i, s in enumerate(NARROW)]
    watched = [*both(NARROW, NARROW), Watched({"scheduler": "s"}, dict(enumerate(wide)))]
    primary = ({"scheduler": "f"}, {"scheduler": "t"})
    assert judge(watched, 7, 1.0, 0.01, 20, None).reason is None
    assert judge(watched, 7, 1.0, 0.01, 20, None, primary=primary).reason == "narrow-enough"


def test_the_widest_ratio_counts():
    wide = [s * (1 + 0.1 * (i % 2)) for i, s in enumerate(NARROW)]
    watched = [*both(NARROW, NARROW), Watched({"scheduler": "s"}, dict(enumerate(wide)))]
    assert judge(watched, 7, 1.0, 0.5, 20, None).rel_ci == pytest.approx(math.log(1.1) / 2)
