"""A recording names its command without the paths of the machine that made it."""

import importlib
import sys
import time

import pytest

from bench import record, rounds


@pytest.mark.parametrize("out", [["--out", "/some/file"], ["--out=/some/file"]])
def test_options_with_paths_are_left_out(monkeypatch: pytest.MonkeyPatch, out: list[str]) -> None:
    given = ["program", "--before", "/some/tree", "--ours", "/other", "--rounds", "6", *out, "--keep", "/a", "--quick"]
    monkeypatch.setattr(sys, "argv", given)
    assert record.head("schema", {})["command"] == ["--rounds", "6", "--quick"]


def test_a_command_without_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["program"])
    assert record.command() == []


def test_the_order_within_rounds_is_another_on_another_occasion(monkeypatch: pytest.MonkeyPatch) -> None:
    """A recording contains the seed of its order, which is the time."""
    seen = []
    for seconds in (1.8e9, 1.8e9 + 3600):
        monkeypatch.setattr(time, "time", lambda seconds=seconds: seconds)
        importlib.reload(rounds)
        seen.append((record.head("schema", {})["order_seed"], [rounds.round_order(range(9), i) for i in range(2)]))
    monkeypatch.undo()
    importlib.reload(rounds)
    assert [seed for seed, _ in seen] == [1_800_000_000, 1_800_003_600]
    assert seen[0][1] != seen[1][1]
