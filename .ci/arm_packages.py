"""Print what a trainer and tests of it need of pyproject.toml on Arm, a requirement a line: pip reads markers for the
machine that it runs on, whatever platform it installs for."""

from __future__ import annotations

import tomllib
from pathlib import Path

from packaging.requirements import Requirement

TESTS = {"hypothesis", "pytest", "pytest-timeout"}

project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
extras = project["optional-dependencies"]
trainer = map(Requirement, (*project["dependencies"], *extras["worker"]))
tests = (each for each in map(Requirement, extras["dev"]) if each.name in TESTS)
for each in (*trainer, *tests):
    if each.marker is None or each.marker.evaluate({"platform_machine": "aarch64"}):
        each.marker = None
        print(each)
