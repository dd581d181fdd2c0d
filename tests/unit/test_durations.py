"""Durations have one grammar in queries, commands and pools files."""

from __future__ import annotations

from datetime import timedelta

import pytest
from pydantic import TypeAdapter, ValidationError

from taskloom.contract import durations
from taskloom.provisioner.pools import Duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("1.5h", 5400), ("7d", 604_800), ("2w", 1_209_600), ("0s", 0), ("90", None), ("h", None),
     ("-1h", None), ("1h30m", None), ("1 h", None)],
)  # fmt: skip
def test_the_grammar(text: str, seconds: float | None) -> None:
    assert durations.seconds(text) == seconds


@pytest.mark.parametrize(("value", "seconds"), [("4h", 14_400), ("04:00:00", 14_400), (30, 30), ("90s", 90)])
def test_a_pools_file_takes_durations_in_both_forms(value: object, seconds: float) -> None:
    assert TypeAdapter(Duration).validate_python(value) == timedelta(seconds=seconds)


@pytest.mark.parametrize("value", ["0s", "soon", "0.5s"])
def test_a_pools_file_names_a_wrong_duration(value: str) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Duration).validate_python(value)
