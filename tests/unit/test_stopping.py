import pytest

from taskloom.analysis.stopping import half_width, judge

NARROW = [1.0, 1.01, 1.02, 1.03, 1.04, 1.05]  # [1, 1.05] around 1.025
WIDE = [1.0, 1.1, 1.2, 1.3, 1.4, 1.5]


def test_the_half_width_is_that_of_the_order_statistics():
    assert half_width(NARROW) == pytest.approx(0.025 / 1.025)
    assert half_width(NARROW[:5]) is None


@pytest.mark.parametrize(
    ("variants", "repetitions", "spent_s", "reason"),
    [
        ([NARROW, NARROW], 6, 60.0, "narrow-enough"),
        ([NARROW, WIDE], 6, 60.0, None),
        ([NARROW[:3], NARROW[:3]], 3, 30.0, None),
        ([NARROW, WIDE], 20, 60.0, "max-repetitions"),
        ([NARROW, WIDE], 6, 90.0, "budget"),  # another block would take 15 s more
        ([NARROW, WIDE], 6, 85.0, None),
        ([NARROW, []], 6, 60.0, "no-results"),
    ],
)
def test_when_it_stops(variants, repetitions, spent_s, reason):
    found = judge(variants, repetitions, spent_s, rel_ci=0.03, max_repetitions=20, budget_s=100.0)
    assert found.reason == reason
    assert found.repetitions == repetitions


def test_the_widest_variant_counts():
    found = judge([NARROW, WIDE], 6, 1.0, rel_ci=0.5, max_repetitions=20, budget_s=None)
    assert found.rel_ci == pytest.approx(0.25 / 1.25)
    assert found.reason == "narrow-enough"
