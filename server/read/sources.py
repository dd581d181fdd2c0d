"""Types that pool, processes and questions share."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from taskloom.server.artifact_store import Store
from taskloom.server.db import Database
from taskloom.server.errors import ServerError
from taskloom.server.settings import Settings

Content = Callable[[Session], Hashable]  # reads a value that changes whenever the inputs of an answer change


@dataclass(frozen=True)
class Refusal:
    """A ServerError on its way to the server's process."""

    slug: str
    detail: str
    fields: dict[str, Any]

    @classmethod
    def of(cls, error: ServerError) -> Refusal:
        return cls(error.slug, str(error), error.fields)


@dataclass(frozen=True)
class Sources:
    """Sources of answers."""

    database: Database
    store: Store
    settings: Settings
