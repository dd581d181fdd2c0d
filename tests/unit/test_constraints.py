"""The pinned dependencies: they install with the oldest Python that the project accepts."""

from __future__ import annotations

import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[2]
PINNED = [Requirement(line) for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line]
OLDEST = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"].removeprefix(">=") + ".0"


@pytest.mark.parametrize("pinned", PINNED, ids=lambda pinned: pinned.name)
def test_a_pinned_release_takes_the_oldest_python(pinned: Requirement) -> None:
    try:
        installed = metadata.distribution(pinned.name)
    except metadata.PackageNotFoundError:
        pytest.skip("not installed: for another system, or for an extra that tests do without")
    assert pinned.specifier.contains(installed.version), "install again: make .venv/installed-dev"
    needs = SpecifierSet(str(installed.metadata.json.get("requires_python", "")))
    assert needs.contains(OLDEST), f"Requires-Python: {needs}"
