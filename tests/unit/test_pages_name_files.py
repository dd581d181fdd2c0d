"""Pages that describe the code name existing files."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ("docs/architecture.md", "docs/glossary.md", "CONTRIBUTING.md")


def named(text: str) -> list[str]:
    """Paths of sources in backticks, `a/{b,c}.py` as a/b.py and a/c.py."""
    found = []
    for token in re.findall(r"`([\w./{},-]+/[\w./{},-]*\.(?:py|md|c))`", text):
        parts = [part.split(",") for part in re.split(r"[{}]", token)]
        found += ["".join(each) for each in itertools.product(*parts)]
    return found


@pytest.mark.parametrize("page", PAGES)
def test_files_that_a_page_names_are_there(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    folders = ("", "gpt2core", "gpt2core/schedulers")
    missing = [name for name in named(text) if not any((ROOT / folder / name).exists() for folder in folders)]
    assert not missing


PASTED = ("README.md", "docs/tutorial.md", "docs/how-to/deploy.md", "docs/how-to/use-in-ci.md")


@pytest.mark.parametrize("page", PASTED)
def test_commands_can_be_pasted_as_printed(page: str) -> None:
    """Each shell variable in a page's blocks is assigned in a block above, or the shell has it."""
    known, missing = {"PWD", "HOME"}, []
    for block in re.findall(r"^```(?:sh|console)\n(.*?)^```", (ROOT / page).read_text(encoding="utf-8"), re.M | re.S):
        for line in re.sub(r"  #.*", "", block).splitlines():
            known |= set(re.findall(r"(?:^|[\s(;])([A-Za-z_]\w*)=", line))
            used = re.findall(r"\$\{?([A-Za-z_]\w*)", re.sub(r"'[^']*'", "", line))
            missing += [name for name in used if name not in known]
    assert not missing
