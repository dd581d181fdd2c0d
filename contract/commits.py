"""Commits: those that submitters name, and those of the trainers that ran."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated

from pydantic import AwareDatetime, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from taskloom.contract.bodies import Model, Request

WORD = r"^[^\x00-\x20\x7f]{1,255}$"  # as Git allows for branches
NAMED = ("commit", "branch", "dirty", "committed_at", "version")
OF_TRAINER = tuple(f"trainer_{name}" for name in NAMED)
SHORT = 7  # digits of a commit from which on they stand for the whole commit
INSTANT = "an instant with a time zone, such as 2026-11-22T10:00:00Z"


def _instant(value: object) -> object:
    """Text, or an instant of Python. Raises PydanticCustomError, since numbers have no time zone."""
    if isinstance(value, str | datetime):
        return value
    raise PydanticCustomError("instant", INSTANT)


Word = Annotated[str, Field(pattern=WORD)]
Instant = Annotated[AwareDatetime, BeforeValidator(_instant), Field(strict=False)]


class NamedCommit(Request):
    """The commit that an experiment is about, as its submitter names it."""

    commit: Word | None = Field(None, description="commit that this experiment measures, such as Git's hash")
    branch: Word | None = Field(None, description="its branch")
    dirty: bool | None = Field(None, description="whether the sources differ from the commit")
    committed_at: Instant | None = Field(None, description="time of the commit, with a time zone")
    version: Word | None = Field(None, description="version or release that it belongs to")


class Commits(Model):
    """The commit that a submitter named, and the trainer's."""

    commit: str | None = Field(None, description="the commit that the submitter named; null: none")
    branch: str | None = Field(None, description="its branch, as submitted")
    dirty: bool | None = Field(None, description="whether the sources differed from it, as submitted")
    committed_at: datetime | None = Field(None, description="its time, as submitted")
    version: str | None = Field(None, description="its version, as submitted")


class TrainerCommit(Model):
    """The commit of the trainer of a result, from its build."""

    trainer_commit: str | None = Field(None, description="commit of the trainer that ran; null: unknown, or no result")
    trainer_branch: str | None = Field(None, description="its branch when it was built, or of its checkout")
    trainer_dirty: bool | None = Field(None, description="whether its sources differed from the commit; null: unknown")
    trainer_committed_at: datetime | None = Field(None, description="time of its commit; null: unknown")
    trainer_version: str | None = Field(None, description="its version, such as 0.1.0+g1a2b3c4")


def named(given: Mapping[str, object]) -> dict[str, object]:
    """The commit's fields of a request or of an answer, without those that are missing."""
    return {name: given[name] for name in NAMED if given.get(name) is not None}
