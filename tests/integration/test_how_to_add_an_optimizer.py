"""docs/how-to/add-an-optimizer.md, followed literally in a copy of the trainer: one file and one line."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.compiled import copy_trainer

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "add-an-optimizer.md"
SECTION = re.compile(r"^## \d\. .*?(?:`(?P<path>[^`]+)`)?$(?P<text>.*?)(?=^## )", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```(?:python|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
KNOWN_WITHOUT_NUMBA = (
    "import sys, taskloom.contract.runs as runs; from click.testing import CliRunner; from taskloom.cli import main; "
    "from gpt2core.spec.config import TrainConfig; from gpt2core.networks.memory import memory_bytes; "
    "size = lambda name: memory_bytes(TrainConfig(optimizer=runs.RunSpec(optimizer=name).optimizer))['optimizer']; "
    "assert 0 < 2 * size('lion') == size('adamw'); print(CliRunner().invoke(main, ['train', '--help']).output); "
    "assert not {'numba', 'llvmlite'} & set(sys.modules)"
)


@pytest.mark.timeout(600)
def test_the_page_adds_an_optimizer(tmp_path: Path) -> None:
    sections = []
    for section in SECTION.finditer(PAGE.read_text(encoding="utf-8")):
        (block,) = BLOCK.findall(section["text"])
        sections.append((section["path"], block))
    (path, text), (registry, line), (_, commands) = sections
    assert path is not None
    assert registry is not None
    assert len(line.splitlines()) == 1
    copy_trainer(tmp_path, "gpt2core", "taskloom")
    (tmp_path / path).write_text(text, encoding="utf-8")
    known, opening = (tmp_path / registry).read_text(encoding="utf-8"), "OPTIMIZERS = {\n"
    assert known.count(opening) == 1
    (tmp_path / registry).write_text(known.replace(opening, opening + line), encoding="utf-8")

    environment = {
        **os.environ, "PYTHONPATH": str(tmp_path),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
    }  # fmt: skip

    def run(*command: str) -> str:
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert "lion" in run(sys.executable, "-P", "-c", KNOWN_WITHOUT_NUMBA)
    hashes = set()
    for command in commands.splitlines():
        result = json.loads(run(*shlex.split(command), "--json"))
        assert result["config"]["optimizer"] == "lion"
        assert "lion" in {op["op"] for op in result["ops"]}
        assert result["losses"][-1] < 0.8 * result["losses"][0]
        hashes.add(result["weights_sha256"])
    assert len(commands.splitlines()) == 3
    assert len(hashes) == 1
