"""The line that says how many runs were disturbed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from taskloom.analysis.processes import Process
from taskloom.analysis.scaling import scaling
from taskloom.analysis.validity import marks, summary

MakeResult = Callable[..., dict[str, Any]]


@pytest.fixture
def process(make_result: MakeResult) -> Callable[..., Process]:
    def make(run_id: int, foreign_s: float = 0.0, flagged: bool = False) -> Process:
        result = make_result([9.0, 5.0, 5.0])
        result["validity"] = {"foreign": {"cores": [0], "busy_s": 20.0, "own_s": 10.0, "foreign_s": foreign_s}}
        result["flagged"] = [[], ["steal"] if flagged else [], []]
        return Process(run_id, result, {})

    return make


@pytest.mark.parametrize(
    ("disturbed", "sentences"),
    [
        ((), []),
        ((("foreign_s", 1.0),), ["1 of 3 runs disturbed (foreign load 10 %)"]),
        ((("foreign_s", 1.0), ("foreign_s", 8.7)), ["2 of 3 runs disturbed (foreign load 10 to 87 %)"]),
        ((("flagged", True),), ["1 of 3 runs disturbed (flagged steps in 1)"]),
        (
            (("foreign_s", 1.0), ("flagged", True)),
            ["2 of 3 runs disturbed (foreign load 10 %, flagged steps in 1)"],
        ),
    ],
)
def test_disturbed_runs_in_one_line(
    process: Callable[..., Process], disturbed: tuple[tuple[str, Any], ...], sentences: list[str]
) -> None:
    runs = [process(i, **dict(disturbed[i : i + 1])) for i in range(3)]
    assert summary(runs) == sentences
    assert len(marks(runs)) == len(disturbed)


def test_a_table_tells_of_disturbed_runs_once_and_of_everything_else_as_it_is(process: Callable[..., Process]) -> None:
    table = scaling([process(i, foreign_s=1.0) for i in range(3)])
    assert table.brief[-1] == "3 of 3 runs disturbed (foreign load 10 %)"
    assert table.warnings[-3:] == marks([process(i, foreign_s=1.0) for i in range(3)])
    assert table.brief[:-1] == table.warnings[:-3]
