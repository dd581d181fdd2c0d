"""A recording names its command without the paths of the machine that made it."""

import sys

import pytest

from bench import record


@pytest.mark.parametrize("out", [["--out", "/some/file"], ["--out=/some/file"]])
def test_options_with_paths_are_left_out(monkeypatch: pytest.MonkeyPatch, out: list[str]) -> None:
    given = ["program", "--before", "/some/tree", "--rounds", "6", *out, "--keep", "/a", "--quick"]
    monkeypatch.setattr(sys, "argv", given)
    assert record.head("schema", {})["command"] == ["--rounds", "6", "--quick"]


def test_a_command_without_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["program"])
    assert record.command() == []
