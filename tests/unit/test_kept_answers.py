"""Kept answers: made once from the same, anew from others, and the oldest go first."""

from __future__ import annotations

import pytest

from taskloom.server.read.analysis.answers import Answers


def test_an_answer_is_made_once_from_the_same_and_anew_from_others():
    answers, made = Answers(), iter(range(10))
    asked = [(1, "a"), (1, "a"), (1, "b"), (2, "a"), (1, "a")]
    found = [answers.of(("memory", number), made_from, lambda: next(made)) for number, made_from in asked]
    assert found == [0, 0, 1, 2, 0]


def test_the_answer_that_was_wanted_longest_ago_goes_first():
    answers, made = Answers(most=2), iter(range(10))
    order = "ababca"
    assert [answers.of((name,), 0, lambda: next(made)) for name in order] == [0, 1, 0, 1, 2, 3]
    assert answers.of(("c",), 0, lambda: next(made)) == 2


def test_a_failure_is_not_kept():
    answers = Answers()

    def fails() -> int:
        raise LookupError

    with pytest.raises(LookupError):
        answers.of(("x",), 0, fails)
    assert answers.of(("x",), 0, lambda: 7) == 7
