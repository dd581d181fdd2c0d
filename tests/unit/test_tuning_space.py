"""The space of a tuning, the choice of settings, and the protocol."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from taskloom.analysis.tuning import protocol
from taskloom.analysis.tuning.protocol import Run, Terms, best, following
from taskloom.analysis.tuning.sampler import Tried, choose
from taskloom.analysis.tuning.share import beats_at_least
from taskloom.analysis.tuning.space import SpaceTooLarge, space
from tests.support.present import present

BASE = {"model": "tiny"}
VALUES: dict[str, list[Any]] = {
    "scheduler": ["fork-join", "task"], "sync": ["phase", "step", "none"], "threads": [1, 2, 4, 8]
}  # fmt: skip


def test_settings_that_a_scheduler_does_not_read_make_no_other_configuration():
    found = space(BASE, VALUES)
    assert (found.combinations, len(found), found.equal, found.invalid) == (24, 8 + 12, 4, 0)  # fusion rows with phase
    assert found.index({"scheduler": "fork-join", "sync": "none", "threads": 2}) == found.index(
        {"scheduler": "fork-join", "sync": "step", "threads": 2}
    )
    assert len(space({**BASE, "fusion": "rows"}, VALUES)) == 4 + 12
    assert found.settings(0) == {"scheduler": "fork-join", "sync": "phase", "threads": 1}
    assert len(space(BASE, {"scheduler": ["fork-join"], "policy": ["breadth-first", "critical-path"]})) == 1
    assert len(space(BASE, {"scheduler": ["task"], "assignment": ["static", "dynamic"]})) == 1
    assert len(space({**BASE, "scheduler": "task"}, {"fusion": [None, "all"]})) == 1  # all is the default


def test_refused_combinations_are_counted_with_their_reasons():
    found = space(BASE, {"scheduler": ["serial", "task"], "threads": [1, 2], "batch_slice": [1, 8]})
    assert (len(found), found.invalid) == (3, 5)  # serial has one thread; a batch has 4 sequences
    assert {(error.field, error.value) for error in found.refusals} == {("threads", 2), ("batch_slice", 8)}


@pytest.mark.parametrize(
    ("exclude", "excluded"),
    [
        ([{"threads": 8}], 6),
        ([{"threads": 8, "scheduler": "task"}, {"sync": "none", "scheduler": "task"}], 3 + 4 - 1),
        ([{"threads": 8, "batch": 4}], 6),  # the base's default
        ([{"threads": 8, "batch": 5}, {"threads": 3}, {"model": "small"}], 0),
        ([{"model": "tiny"}], 24),
    ],
)
def test_exclusions(exclude, excluded):
    found = space(BASE, VALUES, exclude)
    assert found.excluded == excluded
    assert len(found.place) == 24 - excluded


def test_a_space_is_not_enumerated_beyond_its_limit():
    with pytest.raises(SpaceTooLarge, match="240000 combinations; the limit is 200000"):
        space(BASE, {"seed": list(range(600)), "threads": list(range(1, 401))})


def test_a_client_that_has_gone_stops_the_enumeration():
    def gone():
        raise ConnectionError

    with pytest.raises(ConnectionError):
        space(BASE, VALUES, between=gone)


SCRIPT = """
import json
from taskloom.analysis.tuning.sampler import Tried, choose
from taskloom.analysis.tuning.space import space
found = space({"model": "tiny"}, {"scheduler": ["fork-join", "task"], "sync": ["phase", "step", "none"],
              "threads": [1, 2, 4, 8], "token_slice": [16, 32, 64], "fusion": ["none", "rows", None]})
tried = [Tried(point, (point * 37 % 11) / 10) for point in range(0, 60, 4)]
print(json.dumps([choose(found, tried, 6, 5, name) for name in ("tpe", "random", "grid")]))
"""


def test_the_choice_is_a_function_of_its_input_in_every_process():
    outputs = {
        subprocess.run([sys.executable, "-c", SCRIPT], env={**os.environ, "PYTHONHASHSEED": seed}, check=True,
                       capture_output=True).stdout for seed in ("1", "2")
    }  # fmt: skip
    assert len(outputs) == 1
    tpe, at_random, grid = json.loads(outputs.pop())
    tried = set(range(0, 60, 4))
    for chosen in (tpe, at_random):
        assert len(set(chosen)) == 6
        assert not set(chosen) & tried
    assert len(set(grid)) == 6
    assert tpe != at_random


def test_what_was_good_is_searched_more():
    """The time depends on threads alone, so the estimator proposes the values that were best."""
    found = space(BASE, {"scheduler": ["fork-join", "task"], "threads": list(range(1, 33)), "fusion": ["none", "rows"]})
    first, later = 0.0, 0.0
    for seed in range(4):
        tried: list[Any] = []
        while len(tried) < 40:
            more = choose(found, tried, 5, seed, "tpe")
            tried += [Tried(p, abs(found.settings(p)["threads"] - 20) / 10) for p in more]
        assert len({each.point for each in tried}) == 40
        first += sum(each.value for each in tried[:10]) / 10
        later += sum(each.value for each in tried[10:]) / 30
    assert later < 0.9 * first


def test_a_space_that_is_exhausted_ends_the_search():
    found = space(BASE, {"threads": [1, 2, 4]})
    assert sorted(choose(found, [], 6, 0, "tpe")) == [0, 1, 2]
    assert choose(found, [Tried(i, 0.0) for i in range(3)], 6, 0, "tpe") == []
    twice = choose(found, [], 6, 0, "grid")
    assert sorted(twice[:3]) == sorted(twice[3:]) == [0, 1, 2]


@pytest.mark.parametrize(("k", "m", "bound"), [(20, 20, 0.861), (59, 59, 0.950), (45, 50, 0.801), (0, 20, 0.0),
                                               (19, 20, 0.784), (1, 1, 0.05)])  # fmt: skip
def test_the_share_is_clopper_and_pearson_s(k, m, bound):
    """Tables of exact one-sided binomial limits at 95 %."""
    assert beats_at_least(k, m) == pytest.approx(bound, abs=5e-4)


def play(terms, values, step_s, most=500, base=BASE, budget=lambda _: 0.0):
    """Run a tuning to its end; step_s(settings or None, block) gives a run's time, or None: it fails."""
    chosen = space(base, values)
    runs: list[Any] = []
    while len(runs) < most:
        step = following(terms, chosen, runs, budget(runs))
        if step.reason is not None:
            return chosen, runs, step.reason
        block = runs[-1].block + 1 if runs else 0
        for role, point in step.parts:
            took = step_s(None if point is None else chosen.settings(point), block)
            fault = None if took is not None else "failed"
            runs.append(Run(len(runs), block, role, point, took, fault))
    raise AssertionError("it does not end")


def threads_help(settings, block):
    return (1.0 if settings is None else 1.0 / settings["threads"]) * (1 + 0.01 * block)


def roles(runs):
    return ["".join(sorted(run.role[0] for run in of)) for of in protocol.by_block(runs).values()]


def test_the_phases_in_their_order():
    terms = Terms(runs=4, batch=2, confirm=6, fresh=5, seed=3)
    chosen, runs, reason = play(terms, VALUES, threads_help)
    equal = protocol.draws(terms, len(chosen)).count(present(best(chosen, runs)))
    assert roles(runs) == ["dtt"] * 2 + ["dw"] * 6 + ["dw"] * (5 - equal)
    assert reason == "complete"
    confirm = [of for of in protocol.by_block(runs).values() if protocol.phase_of(of) == "confirm"]
    assert [of[0].role for of in confirm] == ["default", "winner"] * 3
    assert len(runs) <= terms.planned(len(chosen))
    trials = [run.point for run in runs if run.role == "trial"]
    assert len(set(trials)) == len(trials) == 4


@pytest.mark.parametrize(
    ("count", "batch", "sampler"),
    [(16, 6, "tpe"), (14, 7, "tpe"), (9, 4, "tpe"), (16, 12, "tpe"), (16, 6, "random"), (16, 6, "grid"),
     (90, 6, "tpe")],
)  # fmt: skip
def test_as_many_blocks_and_runs_as_planned(count, batch, sampler):
    terms = Terms(runs=count, batch=batch, confirm=6, fresh=2, seed=1, sampler=sampler)
    chosen, runs, _ = play(terms, VALUES, threads_help)
    explored = [of for of in protocol.by_block(runs).values() if protocol.phase_of(of) == "explore"]
    assert len(explored) == terms.explore_blocks(len(chosen))
    equal = protocol.draws(terms, len(chosen)).count(present(best(chosen, runs)))
    assert len(runs) == terms.planned(len(chosen)) - 2 * equal


def test_the_draws_do_not_depend_on_results():
    terms = Terms(runs=4, batch=2, fresh=10)
    drawn = []
    for sign in (1, -1):
        chosen, runs, _ = play(terms, VALUES, lambda settings, block, sign=sign: threads_help(settings, block) ** sign)
        winner = best(chosen, runs)
        assert [r.point for r in runs if r.role == "drawn"] == [p for p in protocol.draws(terms, 20) if p != winner]
        drawn.append(winner)
    assert drawn[0] != drawn[1]


def test_so_many_runs_measure_the_grid():
    terms = Terms(runs=10, batch=4, confirm=6, fresh=1)
    chosen, runs, _ = play(terms, {"threads": [1, 2, 4]}, threads_help)
    assert (terms.sampler_of(3), terms.explored(3)) == ("grid", 9)
    trials = [run.point for run in runs if run.role == "trial"]
    assert sorted(trials) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert chosen.settings(best(chosen, runs)) == {"threads": 4}


def test_failed_settings_are_the_worst_seen():
    chosen, runs, _ = play(Terms(runs=16, batch=4), VALUES,
                           lambda s, b: None if s and s["threads"] == 8 else threads_help(s, b))  # fmt: skip
    results = protocol.tried(runs)
    assert [each.value is None for each in results].count(True) == 4
    assert best(chosen, runs) not in {each.point for each in results if each.value is None}


def test_no_setting_succeeds():
    _, runs, reason = play(Terms(runs=16, batch=4), VALUES, lambda s, _: None if s else 1.0)
    assert reason == "no-results"
    assert len([run for run in runs if run.role == "trial"]) < 16  # it does not spend all


def test_the_default_never_succeeds():
    _, runs, reason = play(Terms(runs=90, batch=1), VALUES, lambda s, _: 1.0 if s else None)
    assert (reason, len(protocol.by_block(runs))) == ("no-results", protocol.MOST_LOST_BLOCKS)


def test_settings_beside_a_lost_default_are_tried_again():
    chosen, runs, reason = play(Terms(runs=32, batch=4, fresh=0), VALUES,
                                lambda s, b: None if s is None and b == 0 else threads_help(s, b))  # fmt: skip
    assert reason == "complete"
    assert {each.point for each in protocol.tried(runs)} == set(range(len(chosen)))


def test_a_space_of_one_setting_and_ties():
    chosen, runs, reason = play(Terms(runs=2, fresh=3), {"threads": [2]}, lambda *_: 1.0)
    assert (len(chosen), reason, roles(runs)) == (1, "complete", ["dt"] + ["dw"] * 8)
    chosen, runs, _ = play(Terms(runs=5, fresh=0), VALUES, lambda *_: 1.0)
    assert best(chosen, runs) == next(run.point for run in runs if run.role == "trial")  # of equal ones the first


def test_a_budget_shortens_explore_first_and_then_ends_the_rest():
    terms = Terms(runs=16, batch=3, confirm=6, fresh=2, budget_s=28.0)
    _, runs, reason = play(terms, VALUES, threads_help, budget=lambda runs: float(len(runs)))
    assert (reason, roles(runs)) == ("complete", ["dttt"] * 3 + ["dw"] * 8)
    slow = Terms(runs=16, batch=3, confirm=6, fresh=2, budget_s=10.0)
    _, runs, reason = play(slow, VALUES, threads_help, budget=lambda runs: float(len(runs)))
    assert (reason, roles(runs)) == ("budget", ["dttt"] + ["dw"] * 3)


def test_importance_is_the_mean_effect():
    values = [({"threads": "1", "sync": s}, 0.5) for s in "ab"] + [({"threads": "2", "sync": s}, -0.5) for s in "ab"]
    assert protocol.importance(values) == [("threads", 0.5, 4), ("sync", 0.0, 4)]
    assert protocol.importance([]) == []
