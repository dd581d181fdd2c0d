"""If the cache folder is not writable, a worker uses its spool's folder, and a trainer without a worker refuses to
start."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from gpt2core.process import launch
from gpt2core.spec.settings import cache_folder
from taskloom.worker import cache
from taskloom.worker.report import Report

UNWRITABLE = "/proc/nowhere"  # for root as well


def test_the_cache_moves_into_the_spool_where_its_folder_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TASKLOOM_CACHE_DIR", UNWRITABLE)
    cache.settle(tmp_path, Report(as_json=True))
    said = capsys.readouterr()
    assert json.loads(said.out) == {"event": "cache-moved"}
    assert UNWRITABLE in said.err
    assert str(tmp_path / "cache") in said.err
    assert launch.environment()["TASKLOOM_CACHE_DIR"] == os.environ["TASKLOOM_CACHE_DIR"] == str(tmp_path / "cache")
    cache.settle(tmp_path, Report(as_json=True))
    assert capsys.readouterr() == ("", "")
    assert cache_folder().is_dir()


def test_a_trainer_names_the_cache_folder_that_it_cannot_write(tmp_path: Path) -> None:
    done = subprocess.run(
        launch.command(tmp_path / "result.json"), input=json.dumps({"model": "tiny"}), capture_output=True, text=True,
        env={**launch.environment(), "TASKLOOM_CACHE_DIR": UNWRITABLE}, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    error = json.loads(done.stdout.splitlines()[-1])
    assert (error["event"], error["slug"], error["field"]) == ("error", "bad-config", "TASKLOOM_CACHE_DIR")
