"""`taskloom experiments sweep` shows pooled ratios, and what undecided comparisons lack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from taskloom.analysis.processes import Process
from taskloom.analysis.sweep import sweep
from taskloom.analysis_tables import sweep as lines


def shown(make_result: Callable[..., dict[str, Any]], blocks: int) -> list[str]:
    made: list[Any] = []
    for size in (16, 32, 64):
        for i in range(blocks):
            for scheduler, step_s in (("fork-join", 1.2 + 0.001 * (5 * i % 7)), ("task", 1.0)):
                settings = {"scheduler": scheduler, "threads": 2, "token_slice": size}
                result = make_result([9.0, step_s, step_s], **settings)
                made.append(Process(len(made) + 1, result, settings, (1, i), "e", i))
    return [line for line in lines(sweep(made)) if isinstance(line, str)]


def test_pooled_ratios_and_missing_pairs_are_shown(make_result: Callable[..., dict[str, Any]]) -> None:
    verdict, _, lacking, _ = shown(make_result, 6)
    assert verdict.startswith("task is 1.2")
    places = "these 3 places only, which differ in token slice"
    assert verdict.endswith(f" times as fast as fork-join on 2 threads (18 pairs of runs, {places}).")
    family = "one of 3 comparisons and 1 pooled ratio needs at least 8 pairs of runs"
    assert lacking == f"There are too few runs: {family}."


def test_nothing_is_missing_where_there_are_enough(make_result: Callable[..., dict[str, Any]]) -> None:
    assert len(shown(make_result, 9)) == 3


def test_a_question_alone_is_not_called_an_axis_that_does_not_vary(make_result: Callable[..., dict[str, Any]]) -> None:
    made: list[Any] = []
    sides = ({"scheduler": "fork-join", "threads": 1}, {"scheduler": "task", "threads": 2})
    for i in range(6):
        for settings, step_s in zip(sides, (2.0 + 0.001 * i, 1.0), strict=True):
            result = make_result([9.0, step_s, step_s], **settings)
            made.append(Process(len(made) + 1, result, settings, (1, i), "e", i))
    question, other = lines(sweep(made, primary=sides))
    assert str(question).startswith("the question: task, 2 threads is 2.0")
    assert other == "no two variants differ in scheduler alone"
