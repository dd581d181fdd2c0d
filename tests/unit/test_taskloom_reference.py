from __future__ import annotations

from pathlib import Path

from taskloom import reference

PAGE = Path(__file__).parents[2] / "docs/reference/cli.md"


def test_the_command_line_is_documented_as_it_is() -> None:
    assert PAGE.read_text() == reference.render(), "make it again: python -m taskloom.reference > docs/reference/cli.md"
