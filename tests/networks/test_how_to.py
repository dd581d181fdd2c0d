"""docs/how-to/add-a-network.md, followed literally in a copy of the trainer."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.compiled import copy_trainer

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "add-a-network.md"
SECTION = re.compile(r"^## \d\. .*?(?:`(?P<path>[^`]+)`)?$(?P<text>.*?)(?=^## )", re.MULTILINE | re.DOTALL)
CREATED = re.compile(r"Create\s+`(?P<path>[^`]+)`:\n\n```python\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
OPENING = "NETWORKS = {\n"
BLOCK = re.compile(r"^```(?:python|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def copied(tmp_path: Path, files: list[tuple[str, str]], line: str) -> dict[str, str]:
    """The environment of commands that run a copy of the trainer with some more files and a line in the registry."""
    copy_trainer(tmp_path, "gpt2core")
    for path, text in files:
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    registry = tmp_path / "gpt2core/spec/networks.py"
    known = registry.read_text(encoding="utf-8")
    assert known.count(OPENING) == 1
    registry.write_text(known.replace(OPENING, OPENING + line), encoding="utf-8")
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)]),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
    }


def trained(commands: str, network: str, tmp_path: Path, environment: dict[str, str]) -> list[dict[str, Any]]:
    """The results of two commands, whose weights are equal."""
    found = []
    for command in commands.splitlines():
        arguments = [*shlex.split(command), "--json"]
        done = subprocess.run(arguments, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        found.append(json.loads(done.stdout))
    assert [each["config"]["model"]["network"] for each in found] == [network] * 2
    assert len({each["weights_sha256"] for each in found}) == 1
    return found


@pytest.fixture
def sections() -> list[tuple[str | None, str]]:
    """File and block of code of each section of the page; without a file, the code is commands."""
    found = []
    for section in SECTION.finditer(PAGE.read_text(encoding="utf-8")):
        (block,) = BLOCK.findall(section["text"])
        found.append((section["path"], block))
    return found


@pytest.mark.timeout(600)
def test_the_page_adds_a_network(sections: list[tuple[str | None, str]], tmp_path: Path) -> None:
    *files, (registry, line), (_, commands) = sections
    assert registry == "gpt2core/spec/networks.py"
    paths = [(path, text) for path, text in files if path is not None]
    assert [path.rpartition("/")[0] for path, _ in paths] == ["gpt2core/networks/bigram"] * 2
    for result in trained(commands, "bigram", tmp_path, copied(tmp_path, paths, line)):
        assert result["losses"][-1] < 0.8 * result["losses"][0]


@pytest.mark.timeout(600)
def test_the_page_adds_a_layer(tmp_path: Path) -> None:
    (text,) = re.findall(r"^## A layer of one's own$(.*?)(?=^## )", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    files = [(each["path"], each["text"]) for each in CREATED.finditer(text)]
    assert [path for path, _ in files] == ["gpt2core/layers/filters.py", "gpt2core/networks/filters/network.py"]
    environment = copied(tmp_path, files, '    "filters": "gpt2core.networks.filters.network",\n')
    for result in trained(BLOCK.findall(text)[-1], "filters", tmp_path, environment):
        assert sum(result["accuracy"][-10:]) / 10 > 0.8
