"""The stored sentence of an experiment claims no more than its sweep shows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from taskloom.analysis.processes import Process
from taskloom.analysis.sweep import sweep
from taskloom.server.read.experiments.verdicts import of_sweep


@pytest.fixture
def found(make_result):
    """A sweep over both schedulers at some slicings."""

    def build(ratio, sizes, disturbed=False, blocks=8):
        made = []
        for size in sizes:
            for i in range(blocks):
                for scheduler, of in (("fork-join", ratio), ("task", 1.0)):
                    step_s = of * (1 + 0.001 * ((3 * i + len(made)) % 5))
                    settings = {"scheduler": scheduler, "threads": 2, "token_slice": size}
                    result = make_result([9.0, step_s, step_s], **settings)
                    if disturbed and not made:
                        result["flagged"] = [[], ["steal"], []]
                    made.append(Process(len(made) + 1, result, settings, (1, size, i), "e", i))
        return sweep(made)

    return build


def test_a_pooled_ratio_says_which_places_it_is_about(found):
    told = of_sweep(found(1.2, (8, 16, 32))).sentence
    assert told.startswith("task is 1.")
    assert told.endswith(" times as fast as fork-join on 2 threads (24 pairs of runs, these 3 places only).")


@pytest.mark.parametrize(("ratio", "blocks", "verdict"), [(1.002, 8, "same"), (1.1, 3, "undecided")])
def test_a_ratio_that_decides_nothing_says_its_direction(found, ratio, blocks, verdict):
    made = of_sweep(found(ratio, (16,), blocks=blocks))
    assert made.verdict == verdict
    assert "fork-join time / task time 1." in made.sentence


def test_values_that_are_numbers_are_named(make_result):
    made = []
    for i in range(8):
        for threads, step_s in ((1, 1.9), (2, 1.0)):
            result = make_result([9.0, step_s + 0.001 * i, step_s], threads=threads)
            made.append(Process(len(made) + 1, result, {"threads": threads}, (1, i), "e", i))
    told = of_sweep(sweep(made))
    assert (told.a, told.b) == ("1", "2")
    assert told.sentence.startswith("2 threads are 1.8")
    assert told.sentence.endswith(" times as fast as 1 thread.")


TOO_FEW = "too few processes to tell, whatever they show: {} (ratio 1.1000)"
NARROW = "More repetitions narrow the interval."
RESEMBLE = "neighbours resemble each other (autocorrelation 0.80)"


@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        ({"reason": "the interval allows more than one verdict (ratio 1.0045)", "diagnosis": ["two levels"]}, NARROW),
        (
            {"ratio_low": None, "n": 3, "reason": TOO_FEW.format("at least 6 on one occasion")},
            "A verdict needs at least 6 pairs of runs on one occasion.",
        ),
        (
            {"ratio_low": None, "n": 6, "reason": TOO_FEW.format("at least 7 on one occasion")},
            "A verdict needs at least 7 pairs of runs on one occasion.",
        ),
        (
            {"ratio_low": None, "n": 22, "reason": TOO_FEW.format("at least 3 on every occasion")},
            "A verdict needs at least 3 pairs of runs on every occasion.",
        ),
        ({"ratio_low": None, "n": 8, "paired": False}, "A verdict needs runs in interleaved blocks."),
        (
            {"reason": "too few processes: one of 6 comparisons needs at least 8 per side, whatever the times (1.1)"},
            "There are too few runs: one of 6 comparisons needs at least 8 per side.",
        ),
        (
            {"reason": f"would be faster, but the values show {RESEMBLE} (1.1)", "diagnosis": [RESEMBLE, "two levels"]},
            f"The interval does not hold, because the values show {RESEMBLE}.",
        ),
    ],
)
def test_an_undecided_comparison_says_what_it_lacks(found, changes, missing):
    swept = found(1.1, (16,))
    row = replace(swept.rows[0], verdict="undecided", **changes)
    told = of_sweep(replace(swept, rows=[row])).sentence
    assert told.startswith("It is undecided whether task or fork-join is faster on 2 threads: fork-join time / ")
    assert told.endswith(f". {missing}")


@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        ({}, NARROW),
        (
            {"reason": "too few pairs: one of 2 pooled ratios needs at least 7, whatever the times"},
            "There are too few runs: one of 2 pooled ratios needs at least 7.",
        ),
        ({"ratio_low": None, "pairs": 4}, "A verdict needs at least 6 pairs of runs."),
        ({"ratio_low": None}, "A verdict needs at least 3 pairs of runs with each slicing."),
        ({"diagnosis": [RESEMBLE]}, f"The interval does not hold, because the values show {RESEMBLE}."),
    ],
)
def test_undecided_pooled_comparisons_say_what_they_lack(found, changes, missing):
    swept = found(1.1, (8, 16))
    row = replace(swept.pooled[0], verdict="undecided", **changes)
    assert of_sweep(replace(swept, pooled=[row])).sentence.endswith(f" pairs of runs, {row.scope}). {missing}")


def test_disturbed_runs_are_said(found):
    assert of_sweep(found(1.2, (16,), disturbed=True)).sentence.endswith(". Some runs were disturbed.")
    assert of_sweep(found(1.2, (8, 16), disturbed=True)).sentence.endswith(". Some runs were disturbed.")
    assert "disturbed" not in of_sweep(found(1.2, (16,))).sentence
