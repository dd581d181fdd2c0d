"""What rates count: tokens, or images of a network that reads them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from taskloom.server.queue.runs.details import evaluations_of
from taskloom.tables import per_second


def test_the_heading_of_rates_names_what_all_rows_count() -> None:
    images: Any = SimpleNamespace(unit="images")
    tokens: Any = SimpleNamespace(unit="tokens")
    assert per_second([tokens, tokens]) == "tokens/s"
    assert per_second([images]) == "images/s"
    assert per_second([tokens, images]) == "images, tokens/s"
    assert per_second([]) == "tokens/s"


def test_evaluations_are_columns_of_the_step_before_them() -> None:
    found = {"evaluations": [{"step": 2, "loss": 1.5, "accuracy": 0.25}]}
    assert evaluations_of(found) == {1: {"evaluation_loss": 1.5, "evaluation_accuracy": 0.25}}
    assert evaluations_of({}) == {}
