"""A server reports a full disk, and a locked or read-only database."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import event, text
from sqlalchemy.exc import DBAPIError

from taskloom.server import readiness
from taskloom.server.artifact_store import Store
from taskloom.server.db import Database, now, trouble
from taskloom.server.errors import DatabaseUnavailable, StoreUnavailable


def with_pragma(url: str, pragma: str) -> Database:
    database = Database(url, busy_timeout_s=0.01)

    @event.listens_for(database.engine, "connect")
    def connect(connection: sqlite3.Connection, _: object) -> None:
        connection.execute(f"PRAGMA {pragma}").close()

    return database


def fill(database: Database) -> str:
    """The error that is reported if a write needs another database page."""
    with pytest.raises(DBAPIError) as raised, database.write() as session:
        session.execute(text("CREATE TABLE filler AS SELECT zeroblob(1000000) AS x"))  # more than pages that are free
    return trouble(raised.value)


def test_a_full_disk_is_named(database_url: str) -> None:
    assert "disk is full" in fill(with_pragma(database_url, "max_page_count = 1"))


def test_a_read_only_database_is_named_and_not_ready(database_url: str, tmp_path: Path) -> None:
    database = with_pragma(database_url, "query_only = ON")
    assert "read-only" in fill(database)
    with pytest.raises(DatabaseUnavailable, match="read-only"):
        readiness.Readiness(database, Store(tmp_path / "artifacts")).check()


def test_a_locked_database_is_named_and_not_ready(database_url: str, tmp_path: Path) -> None:
    locked, other = Database(database_url, busy_timeout_s=0.01), Database(database_url)
    with other.write() as session:
        now(session)
        with pytest.raises(DatabaseUnavailable, match="locked by another process"):
            readiness.Readiness(locked, Store(tmp_path / "artifacts")).check()


def test_a_folder_that_takes_no_artifacts_is_not_ready(database_url: str, tmp_path: Path) -> None:
    (tmp_path / "artifacts").write_text("a file where the folder should be")
    with pytest.raises(StoreUnavailable, match="cannot be stored"):
        readiness.Readiness(Database(database_url), Store(tmp_path / "artifacts")).check()


def test_an_answer_is_kept_for_a_moment(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "artifacts"
    found = readiness.Readiness(Database(database_url), Store(root))
    found.check()
    assert list(root.rglob("*.*")) == []
    monkeypatch.setattr(Store, "incoming", lambda _: pytest.fail("looked again"))
    found.check()
