"""A comparison of two variants of one experiment has the verdict of its family, whichever way they are named."""

import dataclasses
from typing import Any

import pytest

from taskloom.analysis.comparison import compare
from taskloom.analysis.membership import in_family
from taskloom.analysis.processes import Process
from taskloom.analysis.sweep import sweep

TIMES_S = {("fork-join", 1): 2.0, ("fork-join", 2): 1.2, ("task", 1): 1.8, ("task", 2): 1.0}


@pytest.fixture
def experiment(make_result):
    """Processes of two schedulers and two numbers of threads in some blocks."""

    def build(blocks):
        made: list[Any] = []
        for i in range(blocks):
            for (scheduler, threads), of in TIMES_S.items():
                step_s = of * (1 + 0.0001 * ((3 * i + len(made)) % 5))
                settings = {"scheduler": scheduler, "threads": threads}
                result = make_result([9.0, step_s, step_s], **settings)
                made.append(Process(len(made) + 1, result, settings, (1, i), "e", i, experiment_id=7))
        return made

    return build


def judged(everyone, a, b, primary=None, repetitions=None):
    left, right = (
        [p for p in everyone if (p.config["scheduler"], p.config["threads"]) == of and p.block < (repetitions or 1000)]
        for of in (a, b)
    )
    return in_family(compare(left, right), left, right, 7, everyone, primary)


FORK, TASK = ("fork-join", 2), ("task", 2)
QUESTION = ({"scheduler": "fork-join", "threads": 2}, {"scheduler": "task", "threads": 2})


def test_one_look_at_two_has_the_verdict_of_the_family(experiment):
    """Six pairs decide one comparison, not one of two; seven do."""
    everyone = experiment(6)
    for a, b, alone in ((FORK, TASK, "faster"), (TASK, FORK, "slower")):
        found = judged(everyone, a, b)
        assert (found.verdict, found.family.alone) == ("undecided", alone)
        assert (found.family.experiment_id, found.family.comparisons, found.family.p_adjusted) == (7, 2, None)
        assert found.reason.startswith("too few processes: one of 2 comparisons needs at least 7 per side")
    enough = judged(experiment(7), FORK, TASK)
    assert (enough.verdict, enough.family.alone) == ("faster", "faster")


@pytest.mark.parametrize("blocks", [6, 7, 10])
@pytest.mark.parametrize("primary", [None, QUESTION])
def test_the_verdict_is_that_of_the_sweep(experiment, blocks, primary):
    everyone = experiment(blocks)
    for axis in ("scheduler", "threads"):
        for row in sweep(everyone, axis, primary=primary).rows:
            a, b = ({**row.at, axis: value} for value in (row.a, row.b))
            found = judged(everyone, (a["scheduler"], a["threads"]), (b["scheduler"], b["threads"]), primary)
            assert (found.verdict, found.family.p_adjusted, found.family.primary) == (
                row.verdict, row.p_adjusted, row.primary,
            )  # fmt: skip


def test_the_question_is_judged_alone_and_leaves_the_family(experiment):
    everyone = experiment(6)
    for a, b in ((FORK, TASK), (TASK, FORK)):
        found = judged(everyone, a, b, QUESTION)
        assert (found.verdict, found.family.primary) == (found.family.alone, True)
        assert found.verdict in ("faster", "slower")
    other = judged(everyone, ("fork-join", 1), ("task", 1), QUESTION)
    assert (other.verdict, other.family.comparisons) == ("faster", 1)


def test_variants_that_no_sweep_compares_are_one_of_all_pairs(experiment):
    found = judged(experiment(8), ("fork-join", 1), TASK)
    assert (found.family.comparisons, found.family.p_adjusted) == (6, pytest.approx(6 * found.p_value))
    assert judged(experiment(7), ("fork-join", 1), TASK).verdict == "undecided"  # 6 / 64


def test_some_repetitions_are_a_look_too(experiment):
    found = judged(experiment(12), FORK, TASK, repetitions=7)
    assert (found.n, found.family.p_adjusted) == (7, pytest.approx(2 * found.p_value))
    assert judged(experiment(12), FORK, TASK, repetitions=6).verdict == "undecided"


def test_runs_of_one_variant_and_comparisons_without_a_test_have_no_family(experiment):
    everyone = experiment(12)
    left, right = ([p for p in everyone if p.variant == QUESTION[0] and p.block % 2 == odd] for odd in (0, 1))
    assert in_family(compare(left, right), left, right, 7, everyone, None).family is None
    assert judged(everyone, FORK, TASK, repetitions=1).family is None


def test_equivalence_needs_no_family(experiment):
    everyone = [dataclasses.replace(p, result={**p.result, "step_s": [9.0, 1.0 + 1e-5 * p.block, 1.0]})
                for p in experiment(8)]  # fmt: skip
    found = judged(everyone, FORK, TASK)
    assert (found.verdict, found.family.alone) == ("same", "same")
