"""Filters by commit: the one that the submitter named, and the trainer's; and their names in expressions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Query
from sqlalchemy import select

from taskloom.contract.commits import SHORT, WORD
from taskloom.server.queue.attempts import commits
from taskloom.server.read.lists.fields import Field, has_commit
from taskloom.server.read.lists.keyset import Condition


def names(columns: Sequence[Any], stored: Sequence[Any], whose: str, prefix: str = "") -> list[Field]:
    """The names of a commit's facts. columns: expressions, as of `commits.COLUMNS`. stored: columns whose values are
    all that exist; none: any text is accepted."""
    commit, branch, dirty, at, version = columns
    exist: list[Any] = [select(column).distinct() for column in stored] or [None] * len(columns)
    return [
        Field(f"{prefix}commit", "text", f"commit {whose}; its first digits, {SHORT} or more, suffice", commit,
              stored=exist[0], is_commit=True),
        Field(f"{prefix}branch", "text", f"branch of the commit {whose}", branch, stored=exist[1]),
        Field(f"{prefix}dirty", "boolean", f"whether the sources differed from the commit {whose}", dirty),
        Field(f"{prefix}committed_at", "instant", f"time of the commit {whose}", at),
        Field(f"{prefix}version", "text", f"version of the commit {whose}", version, stored=exist[4]),
    ]  # fmt: skip


@dataclass(frozen=True)
class CommitFilter:
    """Filter by a commit: of experiments by the one that the submitter named, of runs by their trainer's. None: any."""

    commit: str | None = None
    branch: str | None = None
    dirty: bool | None = None
    version: str | None = None
    of_trainer: bool = False

    def conditions(self) -> dict[str, Condition]:
        """SQL of each filter that is set, by its name."""
        prefix = "trainer_" if self.of_trainer else ""
        commit, branch, dirty, _, version = commits.TRAINER if self.of_trainer else commits.COLUMNS
        given: dict[str, Condition] = {}
        if self.commit is not None:
            given["commit"] = has_commit(commit, self.commit)
        if self.branch is not None:
            given["branch"] = branch == self.branch
        if self.dirty is not None:
            given["dirty"] = dirty.is_(self.dirty)
        if self.version is not None:
            given["version"] = version == self.version
        return {prefix + name: condition for name, condition in given.items()}


ANY = CommitFilter()
Hash = Annotated[
    str | None,
    Query(pattern=WORD, description=f"a commit; its first digits, {SHORT} or more, suffice", examples=["1a2b3c4"]),
]
Branch = Annotated[str | None, Query(pattern=WORD, description="the whole name of a branch", examples=["main"])]
Version = Annotated[str | None, Query(pattern=WORD, description="the whole version", examples=["0.1.0+g1a2b3c4"])]


def _of_commit(
    commit: Hash = None,
    branch: Branch = None,
    dirty: Annotated[bool | None, Query(description="whether the sources differed from the commit")] = None,
    version: Version = None,
) -> CommitFilter:
    return CommitFilter(commit, branch, dirty, version)


def _of_trainer(
    trainer_commit: Hash = None,
    trainer_branch: Branch = None,
    trainer_dirty: Annotated[bool | None, Query(description="whether the trainer's sources were changed")] = None,
    trainer_version: Version = None,
) -> CommitFilter:
    return CommitFilter(trainer_commit, trainer_branch, trainer_dirty, trainer_version, of_trainer=True)


Commit = Annotated[CommitFilter, Depends(_of_commit)]
Trainer = Annotated[CommitFilter, Depends(_of_trainer)]
