"""Kept trainers are complete, named by their content, few, and never get an unknown setting."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import ConfigError
from gpt2core.spec.sources import source_hash
from gpt2core.spec.version import origin, recorded
from taskloom.contract.labels import build_label
from taskloom.worker import builds

MINE = source_hash()


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TASKLOOM_CACHE_DIR", str(tmp_path))
    return tmp_path / "builds"


def older(root: Path, number: int, **about: object) -> str:
    """Another kept build."""
    name = f"{number:064x}"
    shutil.copytree(root / MINE, root / name)
    known = json.loads((root / name / "build.json").read_text())
    (root / name / "build.json").write_text(json.dumps(known | about))
    os.utime(root / name, (number, number))
    return name


def test_a_kept_build_is_the_trainer_itself(root: Path) -> None:
    builds.keep()
    builds.keep()
    assert [path.name for path in root.iterdir()] == [MINE]
    assert source_hash(root=root / MINE / "gpt2core") == MINE
    assert {path.suffix for path in (root / MINE / "gpt2core").rglob("*") if path.is_file()} == {".py", ".json"}
    assert builds.labels() == {build_label(MINE): "kept"}


def test_a_kept_build_names_its_commit_and_not_the_installed_one(root: Path) -> None:
    builds.keep()
    assert recorded(root / MINE) == origin()
    copy = root / MINE / "gpt2core/build.json"
    copy.write_text(json.dumps({**json.loads(copy.read_text()), "version": "0.1.0+gabcdef0", "commit": "abcdef0"}))
    code = "from gpt2core.spec.version import origin, version; print(version(), origin().commit)"
    command = builds.command(MINE, [sys.executable, "-c", code])
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["0.1.0+gabcdef0", "abcdef0"]


def test_the_builds_that_were_used_longest_ago_go(root: Path) -> None:
    builds.keep()
    names = [older(root, number) for number in range(1, 11)]
    used = names[0]
    builds.command(used, ["python"])
    builds.keep()
    assert {path.name for path in root.iterdir()} == {MINE, used, *names[-6:]}


def test_a_build_of_another_protocol_is_not_offered(root: Path) -> None:
    builds.keep()
    strange = older(root, 1, protocol=99)
    assert list(builds.labels()) == [build_label(MINE)]
    with pytest.raises(ConfigError):
        builds.command(strange, ["python"])


@pytest.mark.parametrize("build", ["../" + MINE, "f" * 64, "", "/etc"])
def test_only_kept_builds_are_started(build: str) -> None:
    builds.keep()
    with pytest.raises(ConfigError):
        builds.command(build, ["python"])


def test_a_builds_sources_come_first(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builds.keep()
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    assert builds.command(MINE, ["python", "-P"]) == ["env", f"PYTHONPATH={root / MINE}:/somewhere", "python", "-P"]


def test_settings_that_a_build_does_not_know_are_left_out_at_their_defaults_only(root: Path) -> None:
    builds.keep()
    config = TrainConfig().to_dict()
    old = older(root, 1, settings=[name for name in config if name != "grad_clip"])
    assert builds.unknown(MINE, config) == {}
    assert builds.unknown(old, config) == {"grad_clip": 0.0}
    with pytest.raises(ConfigError, match="older than this setting"):
        builds.unknown(old, config | {"grad_clip": 1.0})
