"""docs/how-to/add-a-network.md, followed literally in a copy of the trainer."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "add-a-network.md"
SECTION = re.compile(r"^## \d\. .*?(?:`(?P<path>[^`]+)`)?$(?P<text>.*?)(?=^## )", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```(?:python|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


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
    shutil.copytree(ROOT / "gpt2core", tmp_path / "gpt2core", ignore=shutil.ignore_patterns("__pycache__"))
    for path, text in files:
        assert path is not None
        assert path.startswith("gpt2core/networks/bigram/")
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    assert registry is not None
    opening = "NETWORKS = {\n"
    known = (tmp_path / registry).read_text(encoding="utf-8")
    assert known.count(opening) == 1
    (tmp_path / registry).write_text(known.replace(opening, opening + line), encoding="utf-8")

    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)]),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
    }
    hashes = set()
    for command in commands.splitlines():
        arguments = [*shlex.split(command), "--json"]
        done = subprocess.run(arguments, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        result = json.loads(done.stdout)
        assert result["config"]["model"]["network"] == "bigram"
        assert result["losses"][-1] < 0.8 * result["losses"][0]
        hashes.add(result["weights_sha256"])
    assert len(commands.splitlines()) == 2
    assert len(hashes) == 1
