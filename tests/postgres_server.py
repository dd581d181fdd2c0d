"""Databases on the PostgreSQL server that tests share."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

import psycopg


@dataclass(frozen=True)
class Postgres:
    """A PostgreSQL server of our own."""

    uri: str
    _count: Iterator[int] = field(default_factory=itertools.count)

    def new(self, template: str = "template1") -> str:
        """The URL of a new database: empty, or a copy of another that nobody is connected to."""
        name = f"test{next(self._count)}"
        with psycopg.connect(self.uri, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
        return self.uri.replace("/postgres?", f"/{name}?")
