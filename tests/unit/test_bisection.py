"""Bisection: sides of commits by blocks, errors under optional stopping, and the search."""

from __future__ import annotations

import numpy as np
import pytest

from taskloom.analysis.bisection import FEWEST_BLOCKS, Blocks, Side, compare, judge, search

NOISE = (1.0, 1.004, 0.996, 1.002, 0.998, 1.006, 0.994, 1.001)


def blocks(level: float, n: int = FEWEST_BLOCKS, noise: tuple[float, ...] = NOISE) -> Blocks:
    return {block: level * noise[block % len(noise)] for block in range(n)}


@pytest.mark.parametrize(("bad", "side"), [(1.1, "bad"), (0.9, "bad"), (1.0, "undecided")])
def test_bad_may_be_slower_or_faster_and_must_differ(bad: float, side: Side) -> None:
    found = compare(blocks(1.0), blocks(bad, noise=NOISE[::-1]))
    assert found.side == side
    assert found.ratio == pytest.approx(bad, rel=0.01)


def test_fewer_blocks_decide_nothing() -> None:
    assert compare(blocks(1.0, FEWEST_BLOCKS - 1), blocks(1.1, FEWEST_BLOCKS - 1)).side == "undecided"
    assert compare({}, {}).reason == "no block is complete"


@pytest.mark.parametrize(
    ("good", "commit", "bad", "side"),
    [
        (1.0, 1.09, 1.1, "bad"),
        (1.0, 1.01, 1.1, "good"),
        (1.0, 1.06, 1.1, "bad"),
        (1.0, 1.2, 1.1, "bad"),
        (1.0, 0.9, 1.1, "good"),
        (1.1, 1.09, 1.0, "good"),  # BAD is faster
        (1.1, 1.01, 1.0, "bad"),
        (1.0, 1.1**0.5, 1.1, "undecided"),
    ],
)
def test_a_commit_has_the_side_that_it_resembles(good: float, commit: float, bad: float, side: Side) -> None:
    found = judge(blocks(good), blocks(commit, noise=NOISE[::-1]), blocks(bad))
    assert found.side == side
    assert found.ratio == pytest.approx(commit / good, rel=0.01)
    assert found.low is not None
    assert found.high is not None
    assert found.low <= commit / good <= found.high


def test_only_complete_blocks_count() -> None:
    found = judge(blocks(1.0), dict.fromkeys(range(3, 20), 1.09), blocks(1.1, 12))
    assert (found.blocks, found.side) == (FEWEST_BLOCKS - 3, "undecided")


def test_blocks_that_resemble_each_other_decide_nothing() -> None:
    drifting = tuple(1 + 0.01 * i for i in range(20))
    found = judge(blocks(1.0, 20, (1.0,)), blocks(1.02, 20, drifting), blocks(1.1, 20, (1.0,)))
    assert (found.side, found.low) == ("undecided", None)
    assert "not independent" in found.reason


def test_a_commit_in_the_middle_is_seldom_decided_however_often_one_looks() -> None:
    random, decided, tries = np.random.default_rng(1), 0, 400
    for _ in range(tries):
        good, commit, bad = (level * np.exp(0.02 * random.standard_normal(40)) for level in (1.0, 1.1**0.5, 1.1))
        sides = [dict(enumerate(map(float, values))) for values in (good, commit, bad)]
        for n in range(FEWEST_BLOCKS, 41, 3):
            of_n = [{block: side[block] for block in range(n)} for side in sides]
            if judge(of_n[0], of_n[1], of_n[2]).side != "undecided":
                decided += 1
                break
    assert decided / tries <= 0.05


@pytest.mark.parametrize("length", [2, 3, 4, 9, 100])
def test_every_first_bad_commit_is_found_in_few_steps(length: int) -> None:
    for first in range(1, length):
        asked = list[int]()

        def judged(place: int, first: int = first, asked: list[int] = asked) -> Side:
            asked.append(place)
            return "bad" if place >= first else "good"

        assert search(length, judged) == (first - 1, first)
        assert len(asked) == len(set(asked)) <= max(1, length - 1).bit_length()


def test_undecided_commits_are_left_out_and_never_guessed() -> None:
    def judged(place: int) -> Side:
        return "undecided" if place in (3, 4, 5) else "bad" if place > 4 else "good"

    assert search(9, judged) == (2, 6)
    assert search(3, lambda _: "undecided") == (0, 2)
