"""A temporary folder is deleted when its process has ended, however it ended, and never before."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from gpt2core.process.temporary import FILES, LOCK, TemporaryFolder
from gpt2core.spec.errors import ConfigError
from tests.support.patience import until

HOLD = """
import pathlib, subprocess, sys
from gpt2core.process.temporary import TemporaryFolder
folder = TemporaryFolder(pathlib.Path(sys.argv[1]))
(folder.path / "trace").write_text("steps")
child = subprocess.Popen(sys.argv[2:], pass_fds=(folder.lock.fileno(),)).pid if sys.argv[2:] else 0
print(folder.path, child, flush=True)
sys.stdin.read()
"""
Hold = Callable[..., tuple[subprocess.Popen[str], Path, int]]


@pytest.fixture
def hold(tmp_path: Path) -> Iterator[Hold]:
    """Start a process that has a folder below tmp_path; return it with the folder, and with the child that inherits the
    lock if a command is given."""
    started: list[subprocess.Popen[str]] = []

    def start(*child: str) -> tuple[subprocess.Popen[str], Path, int]:
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(tmp_path), *child],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout
        path, pid = process.stdout.readline().split()
        return process, Path(path), int(pid)

    yield start
    for process in started:
        process.kill()
        process.communicate()


def killed(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()


def test_a_folder_and_all_that_lies_in_it_are_deleted_at_its_end(tmp_path: Path) -> None:
    kept = tmp_path / "spool"
    kept.mkdir()
    (kept / "trace").touch()
    with TemporaryFolder(tmp_path) as folder:
        (folder / "result.json").touch()
        (folder / "artifacts").symlink_to(kept)
        assert folder.is_relative_to(tmp_path)
    assert [path.name for path in tmp_path.rglob("*")] == ["spool", "trace"]


def test_the_folder_of_a_killed_process_is_deleted_by_the_next_one_and_that_of_a_living_one_is_kept(
    tmp_path: Path, hold: Hold
) -> None:
    dead, left, _ = hold()
    _, in_use, _ = hold()
    killed(dead)
    assert (left / "trace").exists()
    with TemporaryFolder(tmp_path) as mine:
        assert {path / FILES for path in tmp_path.iterdir()} == {in_use, mine}
        assert (in_use / "trace").exists()


def test_a_child_that_inherits_the_lock_keeps_the_folder(tmp_path: Path, hold: Hold) -> None:
    parent, shared, pid = hold(sys.executable, "-c", "import signal; signal.pause()")
    killed(parent)
    _, second, _ = hold()
    assert (shared / "trace").exists()
    os.kill(pid, signal.SIGKILL)
    until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE, "the child's end")
    with TemporaryFolder(tmp_path) as mine:
        assert {path / FILES for path in tmp_path.iterdir()} == {second, mine}


def test_a_deletion_that_was_interrupted_is_completed(tmp_path: Path, hold: Hold) -> None:
    dead, left, _ = hold()
    killed(dead)
    (left / "trace").unlink()
    left.rmdir()
    with TemporaryFolder(tmp_path) as mine:
        assert [path / FILES for path in tmp_path.iterdir()] == [mine]


@pytest.mark.parametrize("what", ["another node's", "another user's", "without a lock", "a link", "a file"])
def test_nothing_else_is_deleted(tmp_path: Path, hold: Hold, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    dead, left, _ = hold()
    killed(dead)
    root = left.parent
    if what == "another node's":
        root = root.rename(tmp_path / root.name.replace(os.uname().nodename, "another-node"))
    elif what == "another user's":
        monkeypatch.setattr(os, "geteuid", lambda: root.stat().st_uid + 1)
    elif what == "without a lock":
        (root / LOCK).unlink()
    elif what == "a link":
        there = root.rename(tmp_path / "elsewhere")
        root.symlink_to(there)
    else:
        root.rename(tmp_path / "elsewhere")
        root.write_text("notes")
    before = sorted(tmp_path.rglob("*"))
    with TemporaryFolder(tmp_path):
        pass
    assert sorted(tmp_path.rglob("*")) == before


def test_no_folder_is_made_that_its_process_cannot_use(tmp_path: Path) -> None:
    before = os.umask(0o277)
    try:
        with pytest.raises(ConfigError, match="umask = '0277' is not accepted"):
            TemporaryFolder(tmp_path)
    finally:
        os.umask(before)
    assert not list(tmp_path.iterdir())
