"""docs/how-to/add-a-mode.md, followed literally in a copy of the trainer: one line."""

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
PAGE = ROOT / "docs" / "how-to" / "add-a-mode.md"
BLOCK = re.compile(r"^```(?:python|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PHASES = ["data", "forward", "loss", "backward"]


@pytest.mark.timeout(600)
def test_the_page_adds_a_mode(tmp_path: Path) -> None:
    line, commands = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    assert len(line.splitlines()) == 1
    copy_trainer(tmp_path, "gpt2core", "taskloom")
    registry = tmp_path / "gpt2core" / "spec" / "phases.py"
    known, opening = registry.read_text(encoding="utf-8"), "MODES: Mapping[str, Mode] = {\n"
    assert known.count(opening) == 1
    registry.write_text(known.replace(opening, opening + line), encoding="utf-8")
    environment = {
        **os.environ, "PYTHONPATH": str(tmp_path),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
    }  # fmt: skip

    def result(command: str) -> Any:
        done = subprocess.run(
            [*shlex.split(command), "--json"], cwd=tmp_path, env=environment, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    found = [result(command) for command in commands.splitlines()]
    assert len(found) == 5
    for each in found:
        assert each["config"]["mode"] == "gradients"
        assert list(each["phase_s"]) == PHASES
        assert {op["phase"] for op in each["ops"]} == set(PHASES)
        assert each["memory_bytes"]["gradients"] > 0
        assert each["memory_bytes"]["optimizer"] == 0
        assert each["weights_sha256"] is None
    assert found[0]["losses"] == found[1]["losses"]
    trained = result(commands.splitlines()[0].replace("gradients", "train"))
    assert trained["losses"][0] == found[0]["losses"][0]  # from the same weights
    assert trained["losses"][-1] < found[0]["losses"][-1]  # which only training moves

    refused = subprocess.run(
        ["taskloom", "train", "--mode", "gradients", "--lr", "0.1", "--save", "x.bin"], cwd=tmp_path, env=environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert refused.returncode == 2
    assert refused.stderr.count("mode gradients updates no weight") == 2
