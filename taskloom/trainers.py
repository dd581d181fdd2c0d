"""Trainers of commits in the repository of the current folder, which one experiment runs in turn on this node."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpt2core.spec import printed
from gpt2core.spec.errors import ConfigError
from gpt2core.spec.version import git
from gpt2core.spec.wording import enumerated
from taskloom import named_commit, request_file
from taskloom.client import Client
from taskloom.experiment import Experiment
from taskloom.tables import SHORT_COMMIT

HERE = Path()
OF_FILE = ("base", "limits", "name", "notes", "priority", "requires", "tags")


@dataclass(frozen=True)
class Commit:
    """A commit of the repository of the current folder."""

    sha: str
    subject: str = ""

    def __str__(self) -> str:
        return f"{self.sha[:SHORT_COMMIT]} ({self.subject})"


def commit_of(field: str, given: str) -> Commit:
    """The commit that a word of Git names. Raises ConfigError."""
    line = git(HERE, "show", "-s", "--format=%H %s", "--end-of-options", f"{given}^{{commit}}")
    if line is None:
        raise ConfigError(field, given, "a commit of the repository of the current folder")
    return Commit(*line.split(" ", 1))


def of_file(path: Path) -> dict[str, Any]:
    """Fields of a request's file. Raises ConfigError."""
    return request_file.read(path).model_dump(mode="json", exclude_unset=True)


def check_single(content: Mapping[str, Any], *more: str) -> None:
    """Check that the fields are those of one configuration. more: further accepted fields. Raises ConfigError."""
    known = sorted((*OF_FILE, *more))
    for field in [name for name in content if name not in known]:
        accepted = f"none: commits are compared in one configuration; accepted are {enumerated(known)}"
        raise ConfigError(field, content[field], accepted)


def stored(commit: Commit) -> str:
    """Store the trainer of a commit where workers of this node find it; its build. Raises ConfigError."""
    command = [sys.executable, "-P", "-m", "taskloom.worker.commits", str(HERE.absolute()), commit.sha]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    try:
        answer = printed.document(done.stdout, '{"build"')
    except ValueError:
        answer = {"build": None, "error": done.stderr.strip()}
    if answer["build"] is None:
        raise ConfigError("commit", commit.sha, f"a commit whose trainer can be stored here ({answer['error']})")
    return str(answer["build"])


def both_stored(first: Commit, second: Commit, field: str) -> list[str]:
    """The builds of two commits. field: the second one's name. Raises ConfigError if they are the same."""
    builds = [stored(first), stored(second)]
    if builds[0] == builds[1]:
        raise ConfigError(field, second.sha, f"a commit whose trainer differs from that of {first}")
    return builds


def queued(client: Client, content: Mapping[str, Any], commit: Commit, builds: Sequence[str]) -> Experiment:
    """Queue an experiment that runs these builds in turn, and whose question is the second against the first; an equal
    one that exists is returned instead. commit: the one that it is about."""
    primary = {"a": {"build": builds[0]}, "b": {"build": builds[1]}}
    request = request_file.parse({**content, "builds": list(builds), "primary": primary})
    request = named_commit.completed(request, {"commit": commit.sha})
    key = hashlib.sha256(request.model_dump_json(exclude_unset=True).encode()).hexdigest()
    return client.submit(request, f"trainers {key}")
