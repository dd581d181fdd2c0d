"""The version: what a build recorded, or the commit that a checkout has now."""

import importlib.metadata
import json
import subprocess

import pytest

from gpt2core.spec.version import RELEASE, Origin, checked_out, commit_of, origin, recorded, version, with_commit


def git(folder, *arguments):
    identity = ("-c", "user.name=nobody", "-c", "user.email=nobody@localhost", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", "-C", folder, *identity, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path):
    folder = tmp_path / "checkout"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=trunk/a")
    commit(folder)
    return folder


def commit(folder):
    git(folder, "commit", "--quiet", "--allow-empty", "--message", "a change")
    return git(folder, "rev-parse", "HEAD")


def test_a_checkout_has_the_version_of_the_commit_that_is_checked_out(checkout):
    first, second = checked_out(checkout), commit(checkout)
    assert first != second == checked_out(checkout)
    assert version(checkout) == f"{RELEASE}+g{second[:7]}"
    git(checkout, "checkout", "--quiet", first)  # a detached HEAD
    assert checked_out(checkout) == first


def test_packed_and_linked_branches_are_read(checkout, tmp_path):
    here = checked_out(checkout)
    linked = tmp_path / "linked"
    git(checkout, "worktree", "add", "--quiet", "-b", "other", linked)
    assert checked_out(linked) == here
    git(checkout, "pack-refs", "--all")
    assert (checked_out(checkout), checked_out(linked)) == (here, here)
    assert checked_out(linked) != commit(linked) or checked_out(linked) != here


@pytest.mark.parametrize("head", [None, "", "ref: refs/heads/none\n", "no commit\n", b"\xff"])
def test_a_folder_without_a_commit_has_the_recorded_version(tmp_path, head):
    if head is not None:
        (tmp_path / ".git").mkdir()
        (tmp_path / ".git/HEAD").write_bytes(head if isinstance(head, bytes) else head.encode())
    assert checked_out(tmp_path) is None
    assert version(tmp_path) == importlib.metadata.version("taskloom")


def test_changed_sources_are_another_version():
    assert with_commit("1a2b3c4d5e", "0123456789") == f"{RELEASE}+g1a2b3c4.d01234567"


def test_a_checkout_names_its_commit_branch_time_and_changes(checkout, monkeypatch):
    (checkout / "gpt2core").mkdir()
    (checkout / "gpt2core/a.py").write_text("x = 1\n")
    git(checkout, "add", ".")
    now = commit(checkout)
    found = origin(checkout)
    assert found == Origin(f"{RELEASE}+g{now[:7]}", now, "trunk/a", False, git(checkout, "show", "-s", "--format=%cI"))
    (checkout / "README.md").write_text("not a part of the trainer")
    origin.cache_clear()
    assert origin(checkout) == found
    (checkout / "gpt2core/b.py").write_text("x = 2\n")
    git(checkout, "checkout", "--quiet", "--detach")
    origin.cache_clear()
    monkeypatch.setenv("GIT_DIR", "/nowhere")  # as in a hook of another repository
    assert (origin(checkout).dirty, origin(checkout).branch) == (True, None)
    origin.cache_clear()
    monkeypatch.setenv("PATH", "/nowhere")
    assert origin(checkout) == Origin(f"{RELEASE}+g{now[:7]}", now)
    origin.cache_clear()


def test_a_package_names_what_its_build_recorded(tmp_path):
    assert recorded(tmp_path) is None
    assert origin(tmp_path).version == importlib.metadata.version("taskloom")
    origin.cache_clear()
    version.cache_clear()
    (tmp_path / "gpt2core").mkdir()
    fields = {"version": "0.1.0+gabcdef0", "commit": "abcdef0" * 5, "branch": "main", "dirty": False, "later": 1}
    (tmp_path / "gpt2core/build.json").write_text(json.dumps(fields))
    assert origin(tmp_path) == Origin("0.1.0+gabcdef0", "abcdef0" * 5, "main", False, None)
    assert version(tmp_path) == "0.1.0+gabcdef0"
    for broken in ("", "[]", "no json"):
        (tmp_path / "gpt2core/build.json").write_text(broken)
        assert recorded(tmp_path) is None


@pytest.mark.parametrize(
    ("text", "commit"),
    [("0.1.0", None), ("0.1.0+g1a2b3c4", "1a2b3c4"), ("0.1.0+g1a2b3c4.d01234567", "1a2b3c4"), ("0.1.0+local", None)],
)
def test_a_version_names_its_commit(text, commit):
    assert commit_of(text) == commit
