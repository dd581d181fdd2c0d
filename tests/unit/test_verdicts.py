"""The stored sentence of an experiment claims no more than its sweep shows."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from typing import Any

import pytest

from taskloom.analysis.family import decidable
from taskloom.analysis.processes import Process
from taskloom.analysis.reasons import Reason
from taskloom.analysis.sweep import sweep
from taskloom.analysis.verdict import headline
from tests.support.present import present


@pytest.fixture
def found(make_result):
    """A sweep over both schedulers at some slicings."""

    def build(ratio, sizes, disturbed=0, blocks=8):
        made: list[Any] = []
        for size in sizes:
            for i in range(blocks):
                for scheduler, of in (("fork-join", ratio), ("task", 1.0)):
                    step_s = of * (1 + 0.001 * ((3 * i + len(made)) % 5))
                    settings = {"scheduler": scheduler, "threads": 2, "token_slice": size}
                    result = make_result([9.0, step_s, step_s], **settings)
                    if len(made) < disturbed:
                        result["flagged"] = [[], ["steal"], []]
                    made.append(Process(len(made) + 1, result, settings, (1, size, i), "e", i))
        return sweep(made)

    return build


def test_a_pooled_ratio_says_which_places_it_is_about(found):
    sentence = headline(found(1.2, (8, 16, 32))).sentence
    assert sentence.startswith("task is 1.")
    places = "these 3 places only, which differ in token slice"
    assert sentence.endswith(f" times as fast as fork-join on 2 threads (24 pairs of runs, {places}).")


def test_a_ratio_over_networks_says_that_it_is(make_result):
    made: list[Any] = []
    for model, mode in itertools.product(("tiny", "lstm-tiny"), ("train", "infer")):
        for i, (scheduler, step_s) in itertools.product(range(4), (("fork-join", 1.2), ("task", 1.0))):
            settings = {"scheduler": scheduler, "threads": 2, "model": model, "mode": mode}
            result = make_result([9.0, step_s, step_s + 0.001 * i], **settings)
            made.append(Process(len(made) + 1, result, settings, (1, model, mode, i), "e", i))
    sentence = headline(sweep(made)).sentence
    assert "(16 pairs of runs, these 4 places only, which differ in model and mode)" in sentence


@pytest.mark.parametrize(("ratio", "blocks", "verdict"), [(1.002, 8, "same"), (1.1, 3, "undecided")])
def test_a_ratio_that_decides_nothing_says_its_direction(found, ratio, blocks, verdict):
    made = headline(found(ratio, (16,), blocks=blocks))
    assert made.verdict == verdict
    assert "fork-join time / task time 1." in made.sentence


@pytest.mark.parametrize("sizes", [(16,), (8, 16, 32)])
def test_an_undecided_verdict_says_how_many_repetitions_can_decide_it_once_extended(found, sizes):
    verdict = headline(found(1.1, sizes, blocks=1))
    assert verdict.verdict == "undecided"
    assert verdict.needed_extended
    assert verdict.why == replace(present(verdict.why), of=None)
    pairs = [len(sizes) * repetitions for repetitions in (verdict.needed_extended - 1, verdict.needed_extended)]
    assert [decidable(0.0, n, "signs", 1) for n in pairs] == [False, True]
    assert headline(found(1.1, sizes)).needed_extended is None


def test_among_several_statements_an_extended_experiment_needs_more(found):
    row = replace(found(1.1, (16,), blocks=3).rows[0], why=Reason("adjusted", of=40))
    verdict = headline(replace(found(1.1, (16,)), rows=[row]))
    pairs = [present(verdict.needed_extended) - 1, present(verdict.needed_extended)]
    assert [decidable(0.0, n, "signs", 40) for n in pairs] == [False, True]


def test_values_that_are_numbers_are_named(make_result):
    made: list[Any] = []
    for i in range(8):
        for threads, step_s in ((1, 1.9), (2, 1.0)):
            result = make_result([9.0, step_s + 0.001 * i, step_s], threads=threads)
            made.append(Process(len(made) + 1, result, {"threads": threads}, (1, i), "e", i))
    verdict = headline(sweep(made))
    assert (verdict.a, verdict.b) == ("1", "2")
    assert verdict.sentence.startswith("2 threads are 1.8")
    assert verdict.sentence.endswith(" times as fast as 1 thread.")


def test_the_share_of_disturbed_runs_is_said_and_comes_first_if_most_are(found):
    verdict = headline(found(1.2, (16,), disturbed=1))
    assert (verdict.runs, verdict.disturbed_runs) == (16, 1)
    assert verdict.sentence.endswith(". 1 of 16 runs was disturbed.")
    assert headline(found(1.2, (8, 16), disturbed=3)).sentence.endswith(". 3 of 32 runs were disturbed.")
    assert headline(found(1.2, (16,), disturbed=8)).sentence.startswith("task is ")
    most = headline(found(1.2, (16,), disturbed=9)).sentence
    assert most.startswith("Most runs were disturbed (9 of 16). task is 1.")
    assert "disturbed" not in headline(found(1.2, (16,))).sentence


@pytest.fixture
def asked(make_result):
    """A sweep over two schedulers and two numbers of threads, with the times of one step each, and a question."""

    def build(times_s, primary, blocks=6):
        made: list[Any] = []
        for i in range(blocks):
            for (scheduler, threads), of in times_s.items():
                step_s = of * (1 + 0.0001 * ((3 * i + len(made)) % 5))
                settings = {"scheduler": scheduler, "threads": threads}
                made.append(
                    Process(len(made) + 1, make_result([9.0, step_s, step_s], **settings), settings, (1, i), "e", i)
                )
        return sweep(made, primary=primary)

    return build


TIMES_S = {("fork-join", 1): 2.0, ("fork-join", 2): 1.2, ("task", 1): 1.9, ("task", 2): 1.0}
FORK, TASK = {"scheduler": "fork-join", "threads": 2}, {"scheduler": "task", "threads": 2}


def test_the_question_is_judged_alone_and_the_others_are_a_family(asked):
    """Six pairs decide one comparison, not one of two."""
    assert [row.verdict for row in asked(TIMES_S, None).rows] == ["undecided", "undecided"]
    swept = asked(TIMES_S, (FORK, TASK))
    assert (swept.family.comparisons, swept.comparisons) == (1, 1)
    assert swept.primary is not None
    assert (swept.primary.a, swept.primary.b, swept.primary.axis, swept.primary.at) == (
        "fork-join", "task", "scheduler", {"threads": 2},
    )  # fmt: skip
    assert (swept.primary.verdict, swept.primary.p_adjusted) == ("faster", swept.primary.p_value)
    rows = [(row.at["threads"], row.primary, row.verdict) for row in swept.rows]
    assert rows == [(1, False, "faster"), (2, True, "faster")]
    verdict = swept.verdict
    assert (verdict.primary, verdict.verdict, verdict.a, verdict.b) == (True, "faster", "fork-join", "task")
    assert verdict.sentence.startswith("task is 1.2")
    assert verdict.sentence.endswith(" times as fast as fork-join on 2 threads.")


FIGURES = r"\d\.\d{3} \[\d\.\d{3}, \d\.\d{3}\] times as fast as"


@pytest.mark.parametrize(
    ("primary", "start", "end"),
    [
        (({"scheduler": "task", "threads": 1}, TASK), "2 threads are ", " 1 thread with task."),
        (({"scheduler": "fork-join", "threads": 1}, TASK), "task, 2 threads is ", " fork-join, 1 thread."),
        ((TASK, FORK), "fork-join is slower: ", " task on 2 threads."),
    ],
)
def test_a_question_may_lie_across_the_axis(asked, primary, start, end):
    verdict = asked(TIMES_S, primary).verdict
    assert re.fullmatch(re.escape(start) + FIGURES + re.escape(end), verdict.sentence), verdict.sentence
    assert verdict.primary


def test_a_question_without_results_on_one_side_has_no_verdict(asked):
    swept = asked({key: s for key, s in TIMES_S.items() if key != ("task", 2)}, (FORK, TASK))
    assert (swept.primary, swept.primary_missing, swept.verdict.verdict) == (None, True, "none")
    assert swept.verdict.sentence.startswith("The question cannot be answered")
