"""Trainers of commits, as builds of a node."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpt2core.process.launch import PROTOCOL
from gpt2core.spec.errors import ConfigError
from gpt2core.spec.sources import source_hash
from gpt2core.spec.version import recorded
from taskloom.contract.labels import build_label
from taskloom.worker import builds, commits
from tests.support.repository import Repository


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    monkeypatch.setenv("TASKLOOM_CACHE_DIR", str(tmp_path / "cache"))
    return Repository(tmp_path / "checkout")


def test_a_commits_trainer_becomes_a_build_that_names_it(repository: Repository) -> None:
    first, second = repository.trainer("first", "a"), repository.trainer("second", "b")
    (repository.folder / "gpt2core/process/launch.py").write_text("changed since")
    names = [commits.keep(repository.folder, commit[:10]) for commit in (first, second, first)]
    assert names[0] == names[2] != names[1]
    assert builds.labels().keys() == {build_label(name) for name in names}
    for name, commit in zip(names, (first, second), strict=False):
        kept = builds.folder() / name
        assert source_hash(root=kept / "gpt2core") == name
        origin = recorded(kept)
        assert origin is not None
        assert (origin.commit, origin.dirty, origin.branch) == (commit, False, None)
        assert json.loads((kept / "build.json").read_text()) == {"protocol": PROTOCOL, "settings": ["model"]}
    assert builds.unknown(names[0], {"model": "tiny"}) == {}


def test_a_commit_whose_trainer_cannot_be_started_here_is_refused(repository: Repository) -> None:
    empty = repository.commit("nothing", other="1")
    strange = repository.trainer("another protocol", "a", PROTOCOL + 1)
    broken = repository.commit("broken", gpt2core__process__launch="import nonsense")
    for commit, reason in (
        ("f" * 40, "that has a trainer"), ("--help", "that has a trainer"), (empty, "that has a trainer"),
        (strange, f"protocol {PROTOCOL}, not {PROTOCOL + 1}"), (broken, "No module named 'nonsense'"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=reason):
            commits.keep(repository.folder, commit)
    assert builds.labels() == {}


def test_the_program_prints_the_build_or_why_there_is_none(repository: Repository) -> None:
    commit = repository.trainer("first", "a")
    for asked, code, keys in ((commit, 0, ["build"]), ("nonsense", 2, ["build", "error"])):
        command = [sys.executable, "-P", "-m", "taskloom.worker.commits", str(repository.folder), asked]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert (done.returncode, list(json.loads(done.stdout))) == (code, keys), done.stderr
