"""Every decision has a status line and a place in the index by topic."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "docs/decisions"
STATUS = re.compile(r"# (\d{4}): .+\n\n\*\*Status:\*\* (in force|superseded|not built)[^\n]*\.")


def test_every_decision_has_a_status_line() -> None:
    assert [path.name for path in sorted(FOLDER.glob("0*.md")) if not STATUS.match(path.read_text())] == []


def test_the_index_lists_every_decision_once_under_its_title() -> None:
    listed = re.findall(r"^- \[(\d{4})\]\(([^)]+)\) (.+?)(?: \([a-z ]+\))?$", (FOLDER / "README.md").read_text(), re.M)
    titles = [(path.name[:4], path.name, path.read_text().partition(": ")[2].partition("\n")[0])
              for path in sorted(FOLDER.glob("0*.md"))]  # fmt: skip
    assert sorted(listed) == titles
