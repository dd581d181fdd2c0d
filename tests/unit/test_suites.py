"""CI fails if a test did not run, unless the processor lacks instructions for it (.ci/suites.py)."""

from __future__ import annotations

import importlib.util
from collections import Counter
from pathlib import Path

import pytest

PATH = Path(__file__).parents[2] / ".ci" / "suites.py"


SKIPPED = '<testcase classname="tests.unit.{}" name="two"><skipped message="{}"/></testcase>'


@pytest.mark.parametrize(
    ("second", "code"),
    [
        ('<testcase classname="tests.unit.test_a" name="two"/>', 0),
        ("", 1),
        (SKIPPED.format("test_a", "no browser"), 1),
        (SKIPPED.format("test_a", "this processor lacks x"), 0),
        (SKIPPED.format("test_b", "this processor lacks x"), 1),
    ],
)
def test_every_test_must_run_that_this_processor_can_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, second: str, code: int
) -> None:
    spec = importlib.util.spec_from_file_location("suites", PATH)
    assert spec is not None
    assert spec.loader is not None
    suites = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(suites)
    monkeypatch.setattr(suites, "collected", lambda _: Counter({"tests/unit/test_a.py": 2}))
    report = tmp_path / "report.xml"
    report.write_text(f'<testsuite><testcase classname="tests.unit.test_a" name="one"/>{second}</testsuite>')
    assert suites.main("", str(report)) == code
