import numpy as np
import pytest

from taskloom.analysis.calibration import FEWEST_PAIRS, calibrate, detectable, power, spread_of, upper_spread, with_rate
from taskloom.analysis.comparison import NOISE_FLOOR, decide, verdict_of
from taskloom.analysis.estimators import anytime, of_logs
from taskloom.analysis.processes import Process
from taskloom.contract.experiments import FEWEST_CALIBRATING_RUNS
from tests.support.present import present


def pairs(rng, spread, shape):
    return rng.normal(0, spread, shape)


def test_the_spread_of_pairs_is_what_neighbours_differ_by(make_result):
    values = [1.0, 1.01, 1.0, 1.01, 2.0, 2.02]  # a drift from pair to pair has no effect
    found = present(calibrate(7, [Process(i, make_result([9.0, s, s]), {}) for i, s in enumerate(values)]))
    assert (found.experiment_id, found.node, found.pairs) == (7, "n1", 3)
    assert found.spread == pytest.approx(np.log(1.01))
    # 0.3518: 5 % quantile of chi-square with 3 degrees of freedom
    assert found.spread_upper == pytest.approx(np.log(1.01) * (3 / 0.3518) ** 0.5, rel=1e-3)
    assert found.verdict == "undecided"
    assert [each.pairs for each in found.detectable] == [6, 10, 20, 50]
    assert (found.comparisons, found.false_alarms, found.false_alarm_upper) == (0, 0, 1.0)


def test_a_submission_asks_for_as_many_runs_as_a_calibration_takes():
    assert FEWEST_CALIBRATING_RUNS == 2 * FEWEST_PAIRS


def test_the_median_of_an_even_number_of_runs_lies_between_two(make_result):
    assert present(calibrate(7, [Process(s, make_result([9.0, s, s]), {}) for s in range(1, 7)])).median_step_s == 3.5


def test_pairs_whose_ratio_drifts_are_no_false_alarm(make_result):
    """A comparison of such pairs is not called either."""
    steady = [value for i in range(12) for value in (1.1 + 0.001 * (7 * i % 12), 1.0)]
    drifting = [value for i in range(12) for value in (1.02 + 0.01 * i, 1.0)]
    for values, verdict in ((steady, "faster"), (drifting, "undecided")):
        found = present(calibrate(7, [Process(i, make_result([9.0, s, s]), {}) for i, s in enumerate(values)]))
        assert (found.verdict, found.false_alarms) == (verdict, int(verdict == "faster"))


def test_too_few_runs_calibrate_nothing(make_result):
    assert calibrate(7, [Process(i, make_result(), {}) for i in range(5)]) is None
    assert calibrate(7, []) is None


def test_too_few_pairs_detect_nothing():
    assert detectable([0.01, -0.01, 0.02], 5) is None
    assert power([0.01, -0.01, 0.02], 5, 0.5) == 0
    assert detectable([0.01, -0.01, 0.02], 8, statements=10) is None
    assert detectable([0.01, -0.01, 0.02], 7, sequential=True) is not None
    assert detectable([0.01, -0.01, 0.02], 6, sequential=True) is None


def test_nothing_below_the_noise_floor_is_detectable():
    quiet = [1e-5, -1e-5] * 10
    assert detectable(quiet, 20) == pytest.approx(0.01, rel=1e-2)
    assert power(quiet, 20, 0.009) == 0


@pytest.mark.parametrize(
    ("size", "statements", "sequential"),
    [(8, 1, False), (12, 1, False), (20, 1, False), (20, 6, False), (12, 1, True), (20, 6, True)],
)
def test_what_is_said_to_be_detectable_the_verdict_finds_in_four_of_five_experiments(size, statements, sequential):
    """The verdict includes the noise floor and the adjustment for multiple comparisons. Spreads are estimated from only
    20 pairs; their upper bound is used."""
    rng, found, tried = np.random.default_rng(5), 0, 0
    for _ in range(30):
        smallest = present(detectable(tuple(pairs(rng, 0.01, 20)), size, statements, sequential=sequential))
        for logs in np.log1p(smallest) + pairs(rng, 0.01, (20, size)):
            of = anytime(logs) if sequential else of_logs(logs)
            p_adjusted = min(1.0, statements * of.p_value)
            found += verdict_of(of.value, of.low, of.high, p_adjusted, NOISE_FLOOR) == "faster"
            tried += 1
    assert 0.8 * tried <= found <= 0.98 * tried


OTHER_NOISES = {
    "t2": lambda rng, shape: 0.01 * rng.standard_t(2, shape),
    "lognormal": lambda rng, shape: 0.01 * rng.lognormal(0, 1, shape),
    "bimodal": lambda rng, shape: 0.05 * (rng.random(shape) < 0.3) + rng.normal(0, 0.003, shape),
}


@pytest.mark.parametrize("noise", OTHER_NOISES)
def test_what_is_said_to_be_detectable_is_found_under_other_noises_too(noise):
    """In four of five experiments on average; the bound of the spread is exact for normal noise only."""
    rng, found, tried = np.random.default_rng(11), 0, 0
    for _ in range(30):
        seen, *logs = np.split(-np.diff(OTHER_NOISES[noise](rng, (2, 20 + 20 * 12)), axis=0)[0], range(20, 260, 12))
        smallest = present(detectable(tuple(seen), 12))
        for each in logs:
            of = of_logs(np.log1p(smallest) + each)
            found += verdict_of(of.value, of.low, of.high, of.p_value, NOISE_FLOOR) == "faster"
            tried += 1
    assert (tried, found >= 0.8 * tried) == (600, True)


def test_a_stopping_rule_detects_less():
    """Signs alone decide there; with 20 pairs they find larger differences only."""
    seen = tuple(pairs(np.random.default_rng(5), 0.01, 20))
    assert present(detectable(seen, 20, sequential=True)) > 1.1 * present(detectable(seen, 20))


def test_power_is_how_often_the_verdict_calls():
    rng, seen = np.random.default_rng(6), tuple(pairs(np.random.default_rng(7), 0.01, 200))
    said = power(seen, 12, 0.02)
    logs = np.log1p(0.02) + pairs(rng, upper_spread(seen), (600, 12))
    called = np.mean([decide(list(np.exp(row)), [1.0] * 12, True).verdict == "faster" for row in logs])
    assert said == pytest.approx(called, abs=0.06)


def test_the_upper_bound_of_the_spread_holds_in_19_of_20():
    rng = np.random.default_rng(8)
    assert 0.92 <= np.mean([upper_spread(pairs(rng, 0.01, 10)) >= 0.01 for _ in range(1000)]) <= 0.98
    assert spread_of([0.03, -0.04]) == pytest.approx(0.05 / 2**0.5)


def test_false_alarms_of_a_node_are_counted_over_its_calibrations(make_result):
    def measured(ratio):
        rng = np.random.default_rng(9)
        values = [s for noise in 1 + pairs(rng, 0.001, 8) for s in (noise, noise / ratio)]
        return calibrate(7, [Process(i, make_result([9.0, s, s]), {}) for i, s in enumerate(values)])

    every = [measured(1.0)] * 19 + [measured(1.05)]
    found = with_rate(every[0], every)
    assert (found.comparisons, found.false_alarms) == (20, 1)
    assert found.false_alarm_upper == pytest.approx(0.2161, abs=1e-3)  # Clopper & Pearson 1934
