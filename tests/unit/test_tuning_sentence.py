"""The sentence of a tuning: the names of settings, each verdict, and disturbed runs first if they are most."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from taskloom.analysis.tuning.answer import Confirmed, Share, Tuning, answer
from taskloom.analysis.tuning.protocol import Run, Terms
from taskloom.analysis.tuning.sentence import named, sentence
from taskloom.analysis.tuning.space import space

BEST = {"scheduler": "task", "sync": "none", "threads": 8, "batch_slice": 2, "token_slice": 64, "fusion": "all"}
NAME = "task, sync none, 8 threads, 2x64, fusion all"


def found(verdict: str = "faster", ratio: float = 1.21, low: float = 1.18, high: float = 1.24, **more: Any) -> Tuning:
    """A tuning that ended, with the figures of the answer's example."""
    chosen = space({"model": "tiny"}, {name: [value] for name, value in BEST.items() if name != "batch_slice"})
    empty = answer(7, Terms(), chosen, {"model": "tiny"}, [Run(1, 0, "default", None, 1.0)], {}, 1.0, "complete")
    confirmed = Confirmed(ratio, low, high, verdict, 8, 0.01, "")
    share = Share(0.8609, 20, 20, 3120, 0.95)
    return replace(empty, best=BEST, confirmed=confirmed, share=share, spent_runs=169, **more)


@pytest.mark.parametrize(
    ("values", "name"),
    [
        (BEST, NAME),
        ({"threads": 1, "token_slice": 64, "scheduler": "serial", "batch_slice": 1}, "1 thread, 1x64, serial"),
        ({"batch_slice": 2, "scheduler": "task"}, "batch slice 2, task"),
        ({"batch_slice": 2, "token_slice": 0}, "batch slice 2, token slice 0"),
        ({"op_threads": None, "fusion": None}, "op threads default, fusion default"),
    ],
)
def test_settings_have_the_order_of_the_space(values: dict[str, Any], name: str) -> None:
    assert named(values) == name


SHARE = ("faster than at least 86 % of the 3,120 valid settings (95 % confidence; 20 of 20 drawn at random after it "
         "was chosen).")


def test_the_answer_in_one_sentence() -> None:
    wanted = f"{NAME} is 1.21 times as fast as the default (1.18 to 1.24, 8 pairs) and {SHARE}"
    assert sentence(found(), 8) == wanted


@pytest.mark.parametrize(
    ("verdict", "text"),
    [
        ("slower", f"{NAME} is slower than the default: 0.92 times as fast as the default (0.85 to 1.02, 8 pairs)"),
        ("same", f"{NAME} and the default are equivalent within the noise floor: 0.92 times as fast as the default "
                 "(0.85 to 1.02, 8 pairs)"),
        ("undecided", f"It is undecided whether {NAME} is faster or slower than the default: it ran 0.92 times as fast "
                      "(0.85 to 1.02, 8 pairs)"),
    ],
)  # fmt: skip
def test_other_verdicts(verdict: str, text: str) -> None:
    assert sentence(found(verdict, 0.92, 0.85, 1.02), 8) == f"{text}; it is {SHARE}"


def test_most_runs_disturbed_is_said_first() -> None:
    calm, noisy = found(disturbed_runs=84), found(disturbed_runs=85)
    assert sentence(calm, 8) == sentence(found(), 8)
    assert sentence(noisy, 8) == f"Most runs were disturbed (85 of 169). {sentence(calm, 8)}"
    assert noisy.confirmed is not None
    pairs = replace(calm, confirmed=replace(noisy.confirmed, disturbed_runs=16))
    assert sentence(pairs, 8) == f"Most runs of the confirmation were disturbed (16 of 16). {sentence(calm, 8)}"
    half = replace(calm, confirmed=replace(noisy.confirmed, disturbed_runs=8))
    assert sentence(half, 8) == sentence(calm, 8)
