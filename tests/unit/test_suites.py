"""CI fails if a test did not run, unless the processor lacks instructions for it (.ci/suites.py)."""

from __future__ import annotations

import importlib.util
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

PATH = Path(__file__).parents[2] / ".ci" / "suites.py"


FIRST, SECOND = (f'<testcase classname="tests.unit.test_a" name="{name}"/>' for name in ("one", "two"))
SKIPPED = '<testcase classname="tests.unit.{}" name="two"><skipped message="{}"/></testcase>'


@pytest.mark.parametrize(
    ("second", "code"),
    [
        (SECOND, 0),
        ("", 1),
        (SKIPPED.format("test_a", "no browser"), 1),
        (SKIPPED.format("test_a", "this processor lacks x"), 0),
        (SKIPPED.format("test_b", "this processor lacks x"), 1),
    ],
)
def test_every_test_must_run_that_this_processor_can_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, second: str, code: int
) -> None:
    suites = suites_of(monkeypatch)
    assert suites.main("", report(tmp_path, FIRST + second)) == code


@pytest.mark.parametrize(
    ("again", "code"),
    [(FIRST, 0), ("", 1), (SKIPPED.format("test_a", "this processor lacks x") + FIRST, 0),
     (SKIPPED.format("test_a", "this processor lacks x"), 1), (SKIPPED.format("test_a", "no browser") + FIRST, 1)],
)  # fmt: skip
def test_a_second_run_with_other_settings_replaces_no_first_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: str, code: int
) -> None:
    suites, first = suites_of(monkeypatch), report(tmp_path, FIRST + SECOND)
    assert suites.main("", first, "--again", report(tmp_path, again, "again.xml")) == code
    half = report(tmp_path, FIRST)
    assert suites.main("", half, "--again", report(tmp_path, SECOND, "again.xml")) == 1


def report(folder: Path, cases: str, name: str = "report.xml") -> str:
    (folder / name).write_text(f"<testsuite>{cases}</testsuite>")
    return str(folder / name)


def suites_of(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """.ci/suites.py, for a repository of one file with two tests."""
    spec = importlib.util.spec_from_file_location("suites", PATH)
    assert spec is not None
    assert spec.loader is not None
    suites = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(suites)
    monkeypatch.setattr(suites, "collected", lambda _: Counter({"tests/unit/test_a.py": 2}))
    return suites
