"""The commit that a submission is about: from options, or from the variables of the CI system that runs the command."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from taskloom import request_file
from taskloom.contract.commits import NAMED
from taskloom.contract.experiments import ExperimentRequest

F = TypeVar("F", bound=Callable[..., Any])
GIT_S = 10.0  # longest time that Git may take


@dataclass(frozen=True)
class System:
    """Variables of a CI system, the first that is set counts."""

    name: str
    commit: str
    branch: tuple[str, ...]
    committed_at: tuple[str, ...] = ()
    version: tuple[str, ...] = ()


SYSTEMS = (
    # GITHUB_REF_NAME is 12/merge for a pull request, whose branch GITHUB_HEAD_REF names.
    System("GitHub", "GITHUB_SHA", ("GITHUB_HEAD_REF", "GITHUB_REF_NAME")),
    System(
        "GitLab", "CI_COMMIT_SHA",
        ("CI_MERGE_REQUEST_SOURCE_BRANCH_NAME", "CI_COMMIT_BRANCH"), ("CI_COMMIT_TIMESTAMP",), ("CI_COMMIT_TAG",),
    ),
    System("Jenkins", "GIT_COMMIT", ("CHANGE_BRANCH", "BRANCH_NAME", "GIT_BRANCH"), (), ("TAG_NAME",)),
)  # fmt: skip
VARIABLES = ", ".join(system.commit for system in SYSTEMS)


def commit_options(command: F) -> F:
    """--commit, --branch, --dirty/--not-dirty, --committed-at, --code-version"""
    options = (
        click.option("--commit", metavar="HASH", help="the commit that is measured; \"\": none  [default: that of the "
                     f"CI system: {VARIABLES}]"),
        click.option("--branch", metavar="NAME", help="its branch  [default: that of the CI system]"),
        click.option("--dirty/--not-dirty", default=None, help="whether the sources differ from the commit"),
        click.option("--committed-at", metavar="INSTANT", help="its time, with a time zone  [default: that of the CI "
                     "system, or of the commit in the current folder's repository]"),
        click.option("--code-version", metavar="TEXT", help="version of what is measured  [default: the CI system's "
                     "tag]"),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def options_of(given: dict[str, Any]) -> dict[str, Any]:
    """Take the options of `commit_options` out of a command's, as the commit's fields."""
    return {name: given.pop("code_version" if name == "version" else name) for name in NAMED}


def completed(
    request: ExperimentRequest, options: Mapping[str, Any], environment: Mapping[str, str] = os.environ
) -> ExperimentRequest:
    """The request with its commit. Options count before the request's own fields, and these before the variables of a
    CI system, which are not read if either names a commit. An empty commit stands for none: only the other options
    count then. Raises ConfigError."""
    content = request.model_dump(mode="json", exclude_unset=True)
    given = {name: value for name, value in options.items() if value is not None}
    own = {name: content[name] for name in NAMED if content.get(name) is not None} | given
    if own.get("commit") == "":
        return request_file.parse({**content, **dict.fromkeys(NAMED), **given, "commit": None})
    found = own if "commit" in own else {**of_environment(environment), **own}
    if "commit" in found and "committed_at" not in found:
        at = _time_of(found["commit"])
        found = found if at is None else {**found, "committed_at": at}
    return request_file.parse({**content, **found}) if found else request


def of_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """The commit's fields by the variables of the first CI system that names a commit; none without one."""
    for system in SYSTEMS:
        if environment.get(system.commit):
            known = {"commit": (system.commit,), "branch": system.branch, "committed_at": system.committed_at,
                     "version": system.version}  # fmt: skip
            values = {name: next((environment[each] for each in names if environment.get(each)), None)
                      for name, names in known.items()}  # fmt: skip
            if system.name == "GitHub" and environment.get("GITHUB_REF_TYPE") == "tag":
                values |= {"branch": None, "version": environment.get("GITHUB_REF_NAME") or None}
            found = {name: value for name, value in values.items() if value is not None}
            if system.name == "Jenkins" and "branch" in found:  # GIT_BRANCH has the remote's name
                found["branch"] = found["branch"].removeprefix("origin/")
            return found
    return {}


def _time_of(commit: str) -> str | None:
    """Time of a commit by the repository of the current folder; None if it has no such commit."""
    command = ["git", "--no-optional-locks", "show", "-s", "--format=%cI", "--end-of-options", f"{commit}^{{commit}}"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=GIT_S, stdin=subprocess.DEVNULL
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None
