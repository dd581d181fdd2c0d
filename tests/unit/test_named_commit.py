"""The commit of a submission: options before the request, and that before a CI system's variables."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpt2core.spec.errors import ConfigError
from taskloom.contract.experiments import ExperimentRequest
from taskloom.named_commit import completed, of_environment

HASH = "1a2b3c4d" * 5
GITHUB = {"GITHUB_SHA": HASH, "GITHUB_REF_NAME": "main", "GITHUB_HEAD_REF": "", "GITHUB_REF_TYPE": "branch"}


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({}, {}),
        ({"GITHUB_REF_NAME": "main", "GITHUB_SHA": ""}, {}),
        (GITHUB, {"commit": HASH, "branch": "main"}),
        ({**GITHUB, "GITHUB_REF_NAME": "12/merge", "GITHUB_HEAD_REF": "fix"}, {"commit": HASH, "branch": "fix"}),
        ({**GITHUB, "GITHUB_REF_NAME": "v1.2", "GITHUB_REF_TYPE": "tag"}, {"commit": HASH, "version": "v1.2"}),
        (
            {"CI_COMMIT_SHA": HASH, "CI_COMMIT_BRANCH": "main", "CI_COMMIT_TIMESTAMP": "2026-11-22T10:00:00+01:00"},
            {"commit": HASH, "branch": "main", "committed_at": "2026-11-22T10:00:00+01:00"},
        ),
        ({"CI_COMMIT_SHA": HASH, "CI_COMMIT_TAG": "v1.2"}, {"commit": HASH, "version": "v1.2"}),
        (
            {"CI_COMMIT_SHA": HASH, "CI_MERGE_REQUEST_SOURCE_BRANCH_NAME": "fix"},
            {"commit": HASH, "branch": "fix"},
        ),
        ({"GIT_COMMIT": HASH, "GIT_BRANCH": "origin/main"}, {"commit": HASH, "branch": "main"}),
        ({"GIT_COMMIT": HASH, "CHANGE_BRANCH": "fix", "BRANCH_NAME": "PR-7"}, {"commit": HASH, "branch": "fix"}),
        ({"GIT_COMMIT": HASH}, {"commit": HASH}),
    ],
)
def test_a_ci_systems_variables_name_the_commit(variables: dict[str, str], found: dict[str, str]) -> None:
    assert of_environment(variables) == found


def completed_fields(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, request: dict[str, Any], options: dict[str, Any]
) -> dict[str, Any]:
    monkeypatch.chdir(tmp_path)  # no repository, so no time of the commit
    found = completed(ExperimentRequest.model_validate(request), options, GITHUB)
    return found.model_dump(mode="json", include={"commit", "branch", "dirty", "committed_at"}, exclude_none=True)


@pytest.mark.parametrize(
    ("request_", "options", "found"),
    [
        ({}, {}, {"commit": HASH, "branch": "main"}),
        ({}, {"branch": "mine"}, {"commit": HASH, "branch": "mine"}),
        ({}, {"commit": "abc1234"}, {"commit": "abc1234"}),  # the variables are of another commit
        ({"commit": "of-file", "dirty": True}, {}, {"commit": "of-file", "dirty": True}),
        ({"commit": "of-file", "branch": "a"}, {"commit": "abc1234"}, {"commit": "abc1234", "branch": "a"}),
        ({}, {"dirty": False}, {"commit": HASH, "branch": "main", "dirty": False}),
        ({}, {"commit": ""}, {}),
        ({"commit": "of-file", "branch": "a"}, {"commit": ""}, {}),
        ({"commit": "of-file", "branch": "a"}, {"commit": "", "branch": "main"}, {"branch": "main"}),
    ],
)
def test_options_count_before_the_request_and_that_before_variables(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, request_: dict[str, Any], options: dict[str, Any],
    found: dict[str, Any],
) -> None:  # fmt: skip
    assert completed_fields(monkeypatch, tmp_path, request_, options) == found


def test_the_current_repository_knows_when_the_commit_was_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def git(*arguments: str) -> str:
        identity = ("-c", "user.name=nobody", "-c", "user.email=nobody@localhost", "-c", "commit.gpgsign=false")
        at = {"GIT_COMMITTER_DATE": "2026-11-22T10:00:00+01:00", "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
        done = subprocess.run(
            ["git", "-C", tmp_path, *identity, *arguments], capture_output=True, text=True, check=True, env=at
        )
        return done.stdout.strip()

    git("init", "--quiet")
    git("commit", "--quiet", "--allow-empty", "--message", "a change")
    commit = git("rev-parse", "HEAD")
    found = completed_fields(monkeypatch, tmp_path, {}, {"commit": commit})
    assert found == {"commit": commit, "committed_at": "2026-11-22T10:00:00+01:00"}
    assert completed_fields(monkeypatch, tmp_path, {}, {"commit": "--help"}) == {"commit": "--help"}


def test_a_wrong_value_is_refused_by_its_field(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in (("commit", "two words"), ("committed_at", "yesterday"), ("branch", "")):
        with pytest.raises(ConfigError) as refused:
            completed_fields(monkeypatch, tmp_path, {}, {name: value})
        assert (refused.value.field, refused.value.value) == (name, value)
