"""The version: what a build recorded, or the commit that a checkout has now."""

import importlib.metadata
import subprocess

import pytest

from gpt2core.spec.version import RELEASE, checked_out, version, with_commit


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
