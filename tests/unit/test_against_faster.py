"""Tasks are compared with the faster of two orders of fork-join's loops."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from taskloom.analysis.against_faster import rivals
from taskloom.analysis.processes import Process
from taskloom.analysis.stopping import Watched, widest
from taskloom.analysis.sweep import planned, sweep
from taskloom.analysis.verdict import headline
from tests.support.interval import interval
from tests.support.present import present

ORDERS = ("layers", "diagonals")
LAYERS, DIAGONALS = ({"scheduler": "fork-join", "op_order": order} for order in ORDERS)
TASK = {"scheduler": "task", "op_order": "layers"}
JITTER = (0.0, 0.004, -0.003, 0.001, -0.004, 0.002, 0.003, -0.001)


@pytest.fixture
def measured(make_result):
    """Blocks of fork-join in both orders and of task, as runs; times in units of task's."""

    def build(layers, diagonals, blocks=8, both=False, more=({},), primary=None, lost=()):
        made: list[Any] = []
        variants = [(LAYERS, layers), (DIAGONALS, diagonals), (TASK, 1.0)]
        variants += [({**TASK, "op_order": "diagonals"}, 1.0)] * both
        for block in range(blocks):
            for rest in more:
                for number, (variant, of) in enumerate(variants):
                    step_s = of * math.exp(JITTER[(3 * block + 5 * number) % 8])
                    settings = {"threads": 2, **variant, **rest}
                    result = make_result([9.0, step_s, step_s], model="lstm-tiny", **settings)
                    made.append(Process(len(made) + 1, result, settings, (1, block, str(rest)), "e", block))
        return sweep([each for each in made if each.run_id not in lost], primary=primary)

    return build


@pytest.mark.parametrize("both", [False, True])
def test_the_claim_is_against_the_faster_loops_and_names_both(measured, both):
    found = measured(1.4, 1.08, both=both)
    (row,) = found.against_faster
    assert (row.a, row.b, row.op_order, row.verdict, row.places) == ("fork-join", "task", "diagonals", "faster", 1)
    assert row.ratio == pytest.approx(1.08, rel=0.01)
    assert [(each.op_order, round(each.ratio, 1)) for each in row.orders] == [("diagonals", 1.1), ("layers", 1.4)]
    assert row.p_value == max(each.p_value for each in row.orders)
    assert row.ratio_low == min(each.ratio_low for each in row.orders)
    verdict = headline(found)
    assert (verdict.a, verdict.b, verdict.ratio) == ("fork-join by diagonals", "task", row.ratio)
    assert verdict.sentence == row.sentence
    said = " times as fast as the faster fork-join (by diagonals) on 2 threads; with that by layers the ratio is 1.4"
    assert said in verdict.sentence


def test_both_comparisons_must_hold(measured):
    """The weaker comparison decides, though the other one is clear."""
    assert measured(1.4, 1.0).verdict.verdict == "same"
    assert measured(1.003, 1.003).verdict.verdict in ("same", "undecided")
    slower = measured(1.4, 0.9)
    assert slower.verdict.verdict == "slower"
    assert "task is slower: 0.9" in slower.verdict.sentence


def test_slower_than_one_of_two_needs_a_pair_more_than_faster_than_both(measured):
    assert measured(1.4, 1.1, blocks=6).verdict.verdict == "faster"
    found = measured(1.4, 0.9, blocks=6)
    assert (found.verdict.verdict, found.verdict.why.needed) == ("undecided", 7)
    assert found.against_faster[0].ratio_high == max(each.ratio_high for each in found.against_faster[0].orders)
    assert measured(1.4, 0.9, blocks=7).verdict.verdict == "slower"


def test_a_question_about_the_slower_loops_is_answered_and_the_faster_ones_are_said(measured):
    two = {"threads": 2}
    asked = measured(1.4, 1.08, primary=({**LAYERS, **two}, {**TASK, **two}))
    claim = asked.against_faster[0].sentence
    assert asked.verdict.primary
    assert asked.verdict.sentence == f"{asked.primary.sentence} {claim}"
    assert "with op order layers, 2 threads" in asked.primary.sentence
    of_best = measured(1.4, 1.08, primary=({**DIAGONALS, **two}, {**TASK, **two}))
    assert of_best.verdict.sentence == of_best.primary.sentence


def test_the_number_of_pairs_is_that_of_the_faster_loops(measured):
    """The first run, of the slower loops, is lost: its order has a pair less."""
    found = measured(1.4, 1.08, more=({"unit_slice": None}, {"unit_slice": 16}), lost=[1])
    (row,) = found.against_faster
    assert (row.op_order, row.n) == ("diagonals", 16)
    assert "(16 pairs of runs, these 2 places only, which differ in unit slice)" in row.sentence


def test_no_ratio_is_pooled_over_orders(measured):
    """With two unit slices each order is pooled over them, and the claim takes the smaller pooled ratio."""
    found = measured(1.4, 1.08, both=True, more=({"unit_slice": None}, {"unit_slice": 16}))
    pooled = {of.op_order: (of.places, round(of.ratio, 1), of.pairs) for of in found.pooled}
    assert pooled == {"layers": (2, 1.4, 16), "diagonals": (2, 1.1, 16)}
    assert "with op order layers, 2 threads" in next(o for o in found.pooled if o.op_order == "layers").sentence
    (row,) = found.against_faster
    assert (row.places, row.op_order, row.verdict) == (2, "diagonals", "faster")
    assert "(16 pairs of runs, these 2 places only, which differ in unit slice); with that by layers" in row.sentence
    assert measured(1.4, 1.08, both=True).pooled == []
    variants = [{**each, "threads": 2, "unit_slice": u} for each in (LAYERS, DIAGONALS, TASK) for u in (1, 2)]
    assert planned(variants).pooled == 1


def test_experiments_with_one_order_are_as_before():
    variants = [{"scheduler": name, "threads": t} for name in ("fork-join", "task") for t in (1, 2)]
    assert rivals(variants, "scheduler") == []
    assert rivals([LAYERS, DIAGONALS], "op_order") == []
    assert rivals([LAYERS, DIAGONALS, {"scheduler": "omp-for", "op_order": "layers"}], "scheduler") == []
    assert rivals([], None) == []


def test_a_stopping_rule_waits_for_both_orders():
    narrow, wide = [1.0] * 40, [1.0, 2.0] * 20
    by_block = [dict(enumerate(values)) for values in (narrow, wide, narrow)]
    watched = [Watched(variant, values) for variant, values in zip((LAYERS, DIAGONALS, TASK), by_block, strict=True)]
    assert present(widest(watched, "ratio")) > 0.1
    assert widest([watched[0], watched[2]], "ratio") == 0


def test_losses_that_disagree_refuse_the_claim(make_result):
    made: list[Any] = []
    for block in range(6):
        for variant in (LAYERS, DIAGONALS, TASK):
            settings = {"threads": 2, **variant}
            result = make_result([9.0, 1.0, 1.0], model="lstm-tiny", **settings)
            if variant is DIAGONALS:
                result["losses"] = [loss + 1 for loss in result["losses"]]
            made.append(Process(len(made) + 1, result, settings, (1, block), "e", block))
    found = sweep(made)
    assert [row.verdict for row in found.against_faster] == ["refused"]
    assert found.verdict.verdict == "refused"


TRUE = {"alike": (1.0, 1.0), "one slower": (1.0, 1.2), "close": (1.0, 1.005)}


@pytest.mark.parametrize("true", list(TRUE))
@pytest.mark.parametrize("pairs", [6, 8, 12])
def test_interval_and_verdict_err_in_one_of_twenty_at_most(true, pairs):
    """Coverage of the smallest true ratio, and claims although it is 1, over simulated experiments: whichever of the
    two orders looks faster is chosen by the same times."""
    from taskloom.analysis.against_faster import _combined, _Weighed
    from taskloom.analysis.estimators import TAIL, of_logs
    from taskloom.analysis.reasons import Reason

    rng, simulations = np.random.default_rng([pairs, list(TRUE).index(true)]), 1000
    missed = claimed = 0
    for noise in rng.normal(0, 0.01, (simulations, 3, pairs)):
        orders = {}
        for name, ratio, own in zip(ORDERS, TRUE[true], noise, strict=False):
            logs = math.log(ratio) + own - noise[2]  # both comparisons share task's runs
            orders[name] = _Weighed(of_logs(logs), of_logs(logs, tail=TAIL / 2).high, (), Reason("wide"))
        found = _combined(orders)
        low, high = interval(found)
        missed += not low <= 1.0 <= high
        claimed += present(found.p_value) < 0.05 and not low <= 1.0 <= high
    limit = 0.05 * simulations + 3.7 * math.sqrt(0.05 * 0.95 * simulations)
    assert missed <= limit
    assert claimed <= limit
