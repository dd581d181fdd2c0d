"""`taskloom bisect` with real trainers: commits of a repository of this trainer's sources, one of which is slower."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpt2core.compile.target import compiled_folder
from gpt2core.spec.sources import ROOT
from tests.support.processes import House
from tests.support.repository import Repository

SLICING = Path("gpt2core/step/slicing.py")
SIZES = "AUTO_ROWS = (256, 128, 64, 32, 16)"
SETTINGS = ("--model", "tiny", "--batch", "4", "--seq", "64", "--steps", "6", "--scheduler", "serial")
LONGEST_S = 1500.0


@pytest.mark.slow
@pytest.mark.timeout(LONGEST_S)
def test_the_commit_whose_slices_have_one_token_is_found(
    home: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = Repository(tmp_path / "checkout")
    shutil.copytree(ROOT, repository.folder / "gpt2core", ignore=shutil.ignore_patterns("__pycache__"))
    slicing = repository.folder / SLICING

    def commit(subject: str, before: str, after: str) -> str:
        text = slicing.read_text()
        assert before in text
        slicing.write_text(text.replace(before, after, 1))
        return repository.commit(subject)

    good = repository.commit("The trainer as it is")
    slow = commit("Cut slices of one token", SIZES, "AUTO_ROWS = (1,)")
    bad = commit("Say more", "AUTO_ROWS = (1,)", "AUTO_ROWS = (1,)\n# tokens")

    cache = tmp_path / "cache"  # builds of its own; the compiled code of all commits is that of the other tests
    cache.mkdir()
    compiled_folder().mkdir(parents=True, exist_ok=True)
    (cache / compiled_folder().name).symlink_to(compiled_folder())
    monkeypatch.setenv("TASKLOOM_CACHE_DIR", str(cache))
    worker = home.start_worker(None, "--wait-s", "0.5")
    worker.event("registered")
    command = [sys.executable, "-P", "-m", "taskloom.cli", "bisect", good, "HEAD", *SETTINGS]
    done = subprocess.run(
        [*command, "--server", home.url, "--json"], capture_output=True, text=True, check=False,
        cwd=repository.folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["first_bad"], found["good"], found["bad"]) == (slow, good, bad)
    assert [each["subject"] for each in found["candidates"]] == ["Cut slices of one token"]
    assert found["low"] > 1
    assert found["runs"] >= 7 * 2 + 7 * 3
