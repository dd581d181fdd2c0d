import numpy as np
import pytest

from taskloom.analysis.calibration import FEWEST_PAIRS, calibrate, detectable
from taskloom.analysis.comparison import decide
from taskloom.analysis.processes import Process
from taskloom.contract.experiments import FEWEST_CALIBRATING_RUNS


def test_the_spread_of_pairs_is_what_neighbours_differ_by(make_result):
    values = [1.0, 1.01, 1.0, 1.01, 2.0, 2.02]  # a drift from pair to pair does not count
    found = calibrate(7, [Process(i, make_result([9.0, s, s]), {}) for i, s in enumerate(values)])
    assert (found.experiment_id, found.node, found.pairs) == (7, "n1", 3)
    assert found.spread == pytest.approx(np.log(1.01))
    assert found.verdict == "undecided"
    assert [each.pairs for each in found.detectable] == [6, 10, 20, 50]


def test_a_submission_asks_for_as_many_runs_as_a_calibration_takes():
    assert FEWEST_CALIBRATING_RUNS == 2 * FEWEST_PAIRS


def test_too_few_runs_calibrate_nothing(make_result):
    assert calibrate(7, [Process(i, make_result(), {}) for i in range(5)]) is None
    assert calibrate(7, []) is None


@pytest.mark.parametrize("pairs", [12, 20])
def test_what_is_said_to_be_detectable_is_found_in_four_of_five_experiments(pairs):
    rng, spread, simulations = np.random.default_rng(5), 0.01, 300
    shift = 1 + detectable(spread, pairs)
    noise = np.exp(rng.normal(0, spread / np.sqrt(2), (simulations, 2, pairs)))
    found = sum(decide(list(a * shift), list(b), True, noise_floor=1e-9).p_value < 0.05 for a, b in noise)
    assert 0.7 * simulations <= found <= 0.9 * simulations
