from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from taskloom.analysis.changepoints import change_points
from taskloom.analysis.fingerprint import environment_differences
from taskloom.analysis.history import Change, Confirmation, alert, interleaved_alert, series
from taskloom.analysis.processes import Process
from tests.support.present import present

SERIES = 300
NILE = [
    1120, 1160, 963, 1210, 1160, 1160, 813, 1230, 1370, 1140, 995, 935, 1110, 994, 1020, 960, 1180, 799, 958, 1140,
    1100, 1210, 1150, 1250, 1260, 1220, 1030, 1100, 774, 840, 874, 694, 940, 833, 701, 916, 692, 1020, 1050, 969,
    831, 726, 456, 824, 702, 1120, 1100, 832, 764, 821, 768, 845, 864, 862, 698, 845, 744, 796, 1040, 759,
    781, 865, 845, 944, 984, 897, 822, 1010, 771, 676, 649, 846, 812, 742, 801, 1040, 860, 874, 848, 890,
    744, 749, 838, 1050, 918, 986, 797, 923, 975, 815, 1020, 906, 901, 1170, 912, 746, 919, 718, 714, 740,
]  # fmt: skip


def noisy(rng, *levels, outliers=0.0):
    """Runs with 1 % noise around levels given as (runs, seconds); some outliers take 30 % longer."""
    values = np.concatenate([np.full(runs, level) for runs, level in levels])
    return list(values * np.exp(rng.normal(0, 0.01, len(values)) + 0.3 * (rng.random(len(values)) < outliers)))


def test_planted_changes_are_found_where_they_are():
    found = change_points(noisy(np.random.default_rng(1), (20, 1.0), (15, 1.05), (20, 0.98)))
    assert len(found) == 2
    assert found == pytest.approx([20, 35], abs=1)


def test_a_planted_change_of_three_percent_is_nearly_always_found():
    rng = np.random.default_rng(2)
    hits = sum(any(abs(i - 15) <= 2 for i in change_points(noisy(rng, (15, 1.0), (15, 1.03)))) for _ in range(SERIES))
    assert hits >= 0.95 * SERIES


@pytest.mark.parametrize(("runs", "outliers"), [(12, 0.0), (100, 0.0), (100, 0.05)])
def test_nothing_is_found_where_nothing_is_planted(runs, outliers):
    rng = np.random.default_rng(3)
    assert sum(bool(change_points(noisy(rng, (runs, 1.0), outliers=outliers))) for _ in range(SERIES)) <= 0.05 * SERIES


def test_changes_below_the_noise_floor_are_none():
    rng = np.random.default_rng(4)
    values = [1.0 + 1e-6 * noise for noise in rng.normal(size=10)] + [1.005 + 1e-6 * n for n in rng.normal(size=10)]
    assert change_points(values, noise_floor=0.01) == []
    assert change_points(values, noise_floor=0.001) == [10]


def test_the_published_change_of_the_nile_is_found():
    """Its yearly flow at Aswan, 1871 to 1970: one change, after 1898 (Cobb 1978; R's data set Nile)."""
    assert change_points(NILE) == [1899 - 1871]


def test_short_and_constant_series_have_no_changes():
    assert change_points([1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0]) == []
    assert change_points([1.0] * 50) == []


@pytest.fixture
def measured(make_result):
    """Runs 1, 2, ... with these median steps; the core changes at run `changed`."""

    def build(values, changed=10**6, canary_s=None, **settings):
        made = []
        for i, s in enumerate(values, 1):
            result = make_result([9.0, s, s], environment={"core_hash": "new" if i >= changed else "old"}, **settings)
            if canary_s is not None:
                result["canary"] = {"times_s": np.atleast_1d(canary_s[i - 1]).tolist()}
            made.append(Process(i, result, {}, occasion=i // 2))
        return made

    return build


def test_a_series_names_the_software_that_changed_with_its_level(measured):
    values = noisy(np.random.default_rng(4), (12, 1.0), (12, 1.1))
    (found,) = series(measured(values, changed=13), {})
    (change,) = found.changes
    assert (change.last_before, change.first_after) == (12, 13)
    assert change.ratio == pytest.approx(1.1, rel=0.02)
    assert present(change.ratio_low) <= change.ratio <= present(change.ratio_high)
    assert change.differs == ["core_hash: old / new"]
    assert [a.state for a in found.alerts] == ["suspected"]


def test_commits_are_a_difference_only_if_the_trainers_sources_changed(measured):
    def differs(changed):
        processes = measured(noisy(np.random.default_rng(4), (12, 1.0), (12, 1.1)), changed=changed)
        for i, process in enumerate(processes, 1):
            process.result["environment"]["core_version"] = "0.1.0+gaaaaaaa" if i < 13 else "0.1.0+gbbbbbbb"
        assert environment_differences(processes) == (["core_hash: old / new"] if changed == 13 else [])
        (found,) = series(processes, {})
        assert found.points[0].software["core_version"] == "0.1.0+gaaaaaaa"
        return found.changes[0].differs, found.changes[0].cause

    assert differs(changed=10**6) == ([], "environment")
    named = ["core_version: 0.1.0+gaaaaaaa / 0.1.0+gbbbbbbb", "core_hash: old / new"]
    assert differs(changed=13) == (named, "unproven")


def test_another_configuration_or_machine_is_another_series(measured):
    one, other = measured([1.0] * 8), measured([2.0] * 3, threads=2)
    assert [len(s.points) for s in series([*one, *other], {})] == [8, 3]
    one[-1].result["environment"]["cpu_model"] = "Other"
    assert [len(s.points) for s in series(one, {})] == [7, 1]


def test_what_became_faster_is_no_alert(measured):
    (found,) = series(measured(noisy(np.random.default_rng(5), (10, 1.1), (10, 1.0))), {})
    assert (len(found.changes), found.alerts) == (1, [])


BEFORE = [1.0, 1.01, 0.99, 1.005, 0.995, 1.0, 1.002, 0.998]
CHANGE = Change(8, 9, 1.0, 1.05, 1.05, 1.04, 1.06, ["core_hash: old / new"])


@pytest.mark.parametrize(
    ("fresh_s", "active", "state"),
    [
        (None, False, "suspected"),
        ([1.05], True, "confirming"),
        ([s * 1.05 for s in BEFORE[:6]], False, "confirmed"),
        (BEFORE, False, "dismissed"),
        ([s * 0.9 for s in BEFORE[:6]], False, "dismissed"),
        ([1.05, 1.05], False, "suspected"),
        ([1.0, 1.0, 1.0, 1.05, 1.05, 1.05], False, "suspected"),
    ],
)
def test_a_regression_is_called_only_after_fresh_runs_confirm_it(fresh_s, active, state):
    confirmation = None if fresh_s is None else Confirmation(7, frozenset(), active)
    found = alert(CHANGE, BEFORE, confirmation, fresh_s or (), occasions=[0, 1, 2, 0, 1, 2, 0, 1])
    assert found.state == state, found.reason
    assert found.confirming_experiment_id == (None if fresh_s is None else 7)


def test_a_change_that_moves_by_a_run_stays_asked_about(measured):
    values = noisy(np.random.default_rng(6), (10, 1.0), (16, 1.1))
    for run_id, state in ((9, "confirmed"), (13, "confirmed"), (7, "suspected"), (15, "suspected")):
        again = {run_id: Confirmation(7, frozenset(range(21, 27)), active=False)}
        (found,) = series(measured(values, changed=11), again)
        assert [(a.change.first_after, a.state) for a in found.alerts] == [(11, state)], run_id


def test_fresh_runs_of_another_machine_confirm_nothing(measured):
    values = noisy(np.random.default_rng(6), (10, 1.0), (16, 1.1))
    again = {11: Confirmation(7, frozenset(range(21, 27)), active=False)}
    (found,) = series(measured(values, changed=11), again)
    assert [a.state for a in found.alerts] == ["confirmed"]
    elsewhere = measured(values, changed=11)
    for process in elsewhere[20:]:
        process.result["environment"]["node"] = "n2"
    first, _ = series(elsewhere, again)
    assert [(a.state, a.confirming_experiment_id) for a in first.alerts] == [("suspected", 7)]


def test_where_nothing_in_software_differs_slower_runs_confirm_nothing(measured):
    values = noisy(np.random.default_rng(6), (10, 1.0), (16, 1.1))
    again = {11: Confirmation(7, frozenset(range(21, 27)), active=False)}
    (found,) = series(measured(values), again)
    assert [(a.state, a.change.cause) for a in found.alerts] == [("suspected", "environment")]
    assert found.alerts[0].reason.startswith("environment: the software is the same, and the runs have no canary")


def test_a_machine_that_became_slower_moves_its_canary_too(measured):
    """Steps and canary take 10 % longer from run 11 on: their ratio does not change."""
    rng = np.random.default_rng(6)
    machine = np.array(noisy(rng, (10, 1.0), (16, 1.1)))
    steps = machine * np.exp(rng.normal(0, 0.005, 26))
    canary = 0.02 * machine * np.exp(rng.normal(0, 0.005, 26))
    (found,) = series(measured(list(steps)), {})
    assert [c.cause for c in found.changes] == ["environment"]
    (found,) = series(measured(list(steps), changed=11, canary_s=list(canary)), {})
    assert (found.over_canary, found.changes) == (True, [])
    assert found.points[0].canary_s == canary[0]


def test_a_change_that_the_canary_does_not_share_is_the_softwares(measured):
    rng = np.random.default_rng(7)
    steps = noisy(rng, (10, 1.0), (16, 1.1))
    canary = list(0.02 * np.exp(rng.normal(0, 0.003, 26)))
    again = {11: Confirmation(7, frozenset(range(21, 27)), active=False)}
    (found,) = series(measured(steps, changed=11, canary_s=canary), again)
    assert [(a.state, a.change.cause) for a in found.alerts] == [("confirmed", "software")]
    (found,) = series(measured(steps, canary_s=canary), {})
    assert [c.cause for c in found.changes] == ["unexplained"]


@pytest.mark.parametrize(("changed", "cause"), [(11, "unproven"), (10**6, "environment")])
def test_a_change_of_the_canary_alone_is_not_the_softwares(measured, changed, cause):
    """Steps stay as they are; the canary takes 10 % less from run 11 on, in the fresh runs too."""
    rng = np.random.default_rng(9)
    steps = noisy(rng, (26, 1.0))
    canary = list(np.repeat([0.02, 0.018], [10, 16]) * np.exp(rng.normal(0, 0.003, 26)))
    again = {11: Confirmation(7, frozenset(range(21, 27)), active=False)}
    (found,) = series(measured(steps, changed=changed, canary_s=canary), again)
    ((change, one),) = zip(found.changes, found.alerts, strict=True)
    assert change.ratio == pytest.approx(1 / 0.9, rel=0.02)
    assert change.before_s == pytest.approx(change.after_s, rel=0.02)
    assert (change.cause, one.state) == (cause, "suspected")
    assert "the canary changed" in one.reason


def test_a_canary_that_follows_in_part_proves_nothing(measured):
    """The machine takes 20 % longer from run 11 on, and its canary 15 %."""
    rng = np.random.default_rng(10)
    canary = list(np.repeat([0.02, 0.023], [10, 10]) * np.exp(rng.normal(0, 0.002, 20)))
    (found,) = series(measured(noisy(rng, (10, 1.0), (10, 1.2)), changed=11, canary_s=canary), {})
    assert [change.cause for change in found.changes] == ["unproven"]


def test_runs_of_one_night_are_no_sample_of_nights(measured):
    """Eight runs of each of two nights: the ratio has no bounds, since a night's own speed is part of it."""
    runs = measured(noisy(np.random.default_rng(4), (8, 1.0), (8, 1.1)), changed=9)
    for nights, bounded in (([0] * 8 + [1] * 8, False), (range(16), True), ([None] * 16, False)):
        placed = [replace(run, occasion=night) for run, night in zip(runs, nights, strict=True)]
        (change,) = series(placed, {})[0].changes
        assert (change.ratio_low is not None, change.ratio_high is not None) == (bounded, bounded)


def test_occasions_that_differ_as_much_as_the_slowdown_dismiss_nothing():
    """Fresh runs take as long as those before, but occasions differ by 10 %, and the suspected slowdown is 5 %."""
    before = [0.95, 0.951, 1.05, 1.051, 1.0, 1.001, 1.04, 1.041]
    confirmation = Confirmation(7, frozenset(), active=False)
    wide = alert(CHANGE, before, confirmation, [0.97] * 6, 0.2, occasions=[0, 0, 1, 1, 2, 2, 3, 3])
    assert (wide.state, "differed by as much" in wide.reason) == ("suspected", True), wide.reason
    unknown = alert(CHANGE, before, confirmation, [0.97] * 6, 0.2)
    assert (unknown.state, "may hide a slowdown" in unknown.reason) == ("dismissed", True), unknown.reason


@pytest.mark.parametrize(
    ("old_s", "new_s", "state", "cause"),
    [(1.0, 1.1, "confirmed", "software"), (1.1, 1.1, "dismissed", "environment"), (1.0, None, "suspected", "unproven"),
     (1.0, 1.02, "suspected", "unproven")],
)  # fmt: skip
def test_builds_in_turn_tell_the_software_from_the_machine(make_result, old_s, new_s, state, cause):
    """Eight blocks on a machine whose speed varies by 20 %: only the pairs show the difference."""
    fresh: list[Any] = []
    for build, level in (("old", old_s), ("new", new_s)):
        for i, weather in enumerate([1.0, 1.2, 0.9, 1.1, 1.0, 1.2, 0.9, 1.1] if level else []):
            wide = 0.02 if level == 1.02 else 0.0004  # too wide for a verdict
            s = level * weather * (1 + wide * (7 * i % 5 - 2))
            result = make_result([9.0, s, s], environment={"core_hash": build})
            fresh.append(Process(100 * len(build) + len(fresh), result, {"build": build}, ("d", i), "d", i))
    confirmation = Confirmation(7, frozenset(), False, ("old", "new"))
    found = interleaved_alert(CHANGE, confirmation, fresh)
    assert (found.state, found.change.cause) == (state, cause), found.reason
    active = interleaved_alert(CHANGE, replace(confirmation, active=True), fresh)
    assert (active.state, active.confirming_experiment_id) == ("confirming", 7)


def test_only_sources_that_changed_alone_can_be_run_in_turn(measured):
    values = noisy(np.random.default_rng(4), (10, 1.0), (10, 1.1))
    runs = measured(values, changed=11)
    assert series(runs, {})[0].changes[0].builds == ["old", "new"]
    for process in runs[10:]:
        process.result["environment"]["numba"] = "another"
    assert series(runs, {})[0].changes[0].builds == []
    assert series(measured(values), {})[0].changes[0].builds == []


def test_a_canary_that_is_disturbed_on_one_side_of_the_steps_costs_no_power(measured):
    """In a tenth of the runs the host makes one half of the canary's repetitions 1.6 times as long."""
    rng = np.random.default_rng(6)
    found = 0
    for _ in range(20):
        times = 0.02 * np.exp(rng.normal(0, 0.005, (30, 2, 16)))
        disturbed = np.flatnonzero(rng.random(30) < 0.1)
        times[disturbed, rng.integers(2, size=disturbed.size)] *= 1.6
        runs = measured(noisy(rng, (15, 1.0), (15, 1.03)), changed=16, canary_s=times.reshape(30, 32))
        assert all(run.canary_s == pytest.approx(0.02, rel=0.01) for run in runs)
        found += any(abs(change.first_after - 16) <= 2 for change in series(runs, {})[0].changes)
    assert found >= 18


def test_canaries_of_another_kind_are_not_compared(measured):
    """Runs 1 to 10 timed another canary, twice as long: only runs with the newest one are divided by their canary."""
    runs = measured(noisy(np.random.default_rng(5), (30, 1.0)), canary_s=[0.04] * 10 + [0.02] * 20)
    for process in runs[10:]:
        process.result["canary"]["sha256"] = "newer"
    (found,) = series(runs, {})
    assert (found.over_canary, found.changes, len(found.points)) == (True, [], 30)


def of_a_host(rng, follows, canary_sd=0.005, runs=30):
    """Step time / canary time on a host that changes between two levels, 5 % apart, every ten runs on average.

    follows: the share of each change that the canary shows; None: there is no canary.
    """
    levels = np.cumsum(rng.random(runs) < 0.1) % 2 * 0.05
    steps = levels + rng.normal(0, 0.01, runs)
    return np.exp(steps if follows is None else steps - follows * levels - rng.normal(0, canary_sd, runs))


@pytest.mark.parametrize(("follows", "least", "most"), [(None, 0.1, 0.35), (1.0, 0.0, 0.05), (0.8, 0.0, 0.1)])
def test_a_canary_takes_a_hosts_levels_out_as_far_as_it_follows_them(follows, least, most):
    rng = np.random.default_rng(10)
    assert least <= np.mean([bool(change_points(list(of_a_host(rng, follows)))) for _ in range(SERIES)]) <= most


def test_a_canary_takes_a_small_drift_out():
    rng, drift = np.random.default_rng(11), np.linspace(0, 0.02, 60)
    found = [0, 0]
    for _ in range(SERIES):
        steps, canary = drift + rng.normal(0, 0.01, 60), drift + rng.normal(0, 0.005, 60)
        for i, logs in enumerate((steps, steps - canary)):
            found[i] += bool(change_points(list(np.exp(logs))))
    assert found[0] >= 0.2 * SERIES  # without a canary, drift is reported as a change
    assert found[1] <= 0.05 * SERIES


@pytest.mark.parametrize(("cause", "doubted"), [("unproven", True), ("software", False)])
def test_an_alert_without_a_canary_says_that_the_machine_may_have_changed(cause, doubted):
    confirmation, fresh_s = Confirmation(7, frozenset(), False), [s * 1.05 for s in BEFORE[:6]]
    for occasions in ((), [0] * 4 + [1] * 4):
        found = alert(replace(CHANGE, cause=cause), BEFORE, confirmation, fresh_s, occasions=occasions)
        assert (found.state, found.change.cause) == ("confirmed", cause)
        assert ("the machine may have changed with the software" in found.reason) is doubted


def test_occasions_that_differ_as_much_confirm_nothing():
    """After three days at 1.00, 1.04 and 0.97 s, a fourth at 1.05 s proves nothing."""
    days = [s * level for level in (1.0, 1.04, 0.97) for s in BEFORE]
    occasions = [day for day in "abc" for _ in BEFORE]
    confirmation, fresh_s = Confirmation(7, frozenset(), False), [s * 1.05 for s in BEFORE]
    found = alert(CHANGE, days, confirmation, fresh_s, occasions=occasions)
    assert (found.state, "occasions before the change differed as much" in found.reason) == ("suspected", True)
    assert alert(CHANGE, days, confirmation, [s * 1.3 for s in BEFORE], occasions=occasions).state == "confirmed"


@pytest.mark.parametrize("rho", [0.5, 0.8])
def test_neighbours_that_resemble_each_other_are_no_change(rho):
    rng, found = np.random.default_rng(8), 0
    for _ in range(100):
        noise = rng.normal(0, 0.01, 100)
        for i in range(1, 100):
            noise[i] = rho * noise[i - 1] + (1 - rho**2) ** 0.5 * noise[i]
        found += bool(change_points(list(np.exp(noise))))
    assert found <= 12


def test_a_drift_is_no_change():
    rng = np.random.default_rng(9)
    drifting = (1 + np.linspace(0, 0.1, 60) + rng.normal(0, 0.01, 60) for _ in range(100))
    assert sum(bool(change_points(list(values))) for values in drifting) <= 10
