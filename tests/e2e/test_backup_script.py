"""deploy/backup.sh: a backup that is not complete is none, and its status says so."""

from __future__ import annotations

import os
import sqlite3
import subprocess
from pathlib import Path

import pytest

from taskloom.server import migrate
from taskloom.server.db import Database
from tests.support.patience import DEADLINE_S
from tests.support.pgbouncer import pooled
from tests.support.postgres_server import PROGRAMS, Postgres

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parents[2] / "deploy/backup.sh"


def run(*arguments: str | Path, status: int = 0, **settings: str) -> str:
    """What the script prints, on standard error if it must fail."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TASKLOOM_")}
    done = subprocess.run(
        [SCRIPT, *arguments], env={**inherited, "PATH": PROGRAMS, **settings}, capture_output=True, text=True,
        timeout=DEADLINE_S, check=False,
    )  # fmt: skip
    assert done.returncode == status, done.stderr
    return done.stderr if status else done.stdout.strip()


def backups(folder: Path) -> list[str]:
    """Names in the folder of backups, hidden ones too."""
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def database(tmp_path: Path) -> dict[str, str]:
    """Settings of a database with a row and without artifacts."""
    with sqlite3.connect(tmp_path / "taskloom.db") as connection:
        connection.execute("CREATE TABLE run AS SELECT 1 AS id")
    return {"TASKLOOM_DATABASE_URL": f"sqlite:///{tmp_path}/taskloom.db"}


def test_a_backup_belongs_to_its_user_and_only_the_latest_are_kept(database: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "backups"
    (folder / "notes").mkdir(parents=True)
    for day in range(1, 5):
        (folder / f"2026010{day}T000000Z").mkdir()
    made = Path(run(folder, "3", status=0, **database))
    assert (made.stat().st_mode & 0o777, (made / "taskloom.db").stat().st_mode & 0o777) == (0o700, 0o600)
    assert backups(folder) == ["20260103T000000Z", "20260104T000000Z", made.name, "notes"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"TASKLOOM_DATABASE_URL": "sqlite:////nowhere/a.db"}, "no such database"),
        ({"TASKLOOM_DATABASE_URL": "mysql://a/b"}, "neither sqlite:///FILE nor postgresql://"),
        ({"TASKLOOM_ARTIFACT_ROOT": "/nowhere"}, "/nowhere: no such folder of artifacts"),
        ({"TASKLOOM_DATABASE_URL": "postgresql://a@127.0.0.1:9/b"}, "TASKLOOM_ARTIFACT_ROOT: is required"),
        ({"TASKLOOM_DATABASE_URL": "postgresql://a@127.0.0.1:9/b", "TASKLOOM_ARTIFACT_ROOT": "/tmp"}, "refused"),
    ],
)  # fmt: skip
def test_a_failure_leaves_no_backup_and_deletes_none(
    database: dict[str, str], tmp_path: Path, settings: dict[str, str], message: str
) -> None:
    earlier = tmp_path / "backups/20260101T000000Z"
    earlier.mkdir(parents=True)
    assert message in run(earlier.parent, "1", status=1, **{**database, **settings})
    assert backups(earlier.parent) == [earlier.name]


def test_a_damaged_database_is_no_backup(tmp_path: Path) -> None:
    (tmp_path / "taskloom.db").write_bytes(b"SQLite format 3\0" + b"damaged" * 2000)
    assert run(tmp_path / "backups", status=1, TASKLOOM_DATABASE_URL=f"sqlite:///{tmp_path}/taskloom.db")
    assert backups(tmp_path / "backups") == []


@pytest.mark.parametrize("arguments", [(), ("a", "0"), ("a", "all"), ("a", "1", "b")])
def test_other_arguments_are_bad_usage(arguments: tuple[str, ...]) -> None:
    assert "usage: backup.sh FOLDER [KEEP]" in run(*arguments, status=2)


def test_a_password_is_no_argument_of_pg_dump(postgres: Postgres, tmp_path: Path) -> None:
    """Arguments are visible to all users. The test puts a pg_dump before the real one that records its own."""
    recording = tmp_path / "bin/pg_dump"
    recording.parent.mkdir()
    record = f'printf "%s\\n" "$@" > {tmp_path}/arguments'
    recording.write_text(f'#!/bin/sh\n{record}\nPATH=${{PATH#*:}} exec pg_dump "$@"\n')
    recording.chmod(0o755)
    (tmp_path / "artifacts").mkdir()
    url = postgres.new().replace("postgres:@", "postgres:p%4055w0rd@")
    assert "p%4055w0rd" in url
    made = run(
        tmp_path / "backups", PATH=f"{recording.parent}:{PROGRAMS}", TASKLOOM_DATABASE_URL=url,
        TASKLOOM_ARTIFACT_ROOT=str(tmp_path / "artifacts"),
    )  # fmt: skip
    assert backups(Path(made)) == ["artifacts", "taskloom.dump"]
    assert (tmp_path / "arguments").read_text().splitlines()[-1] == "--dbname=service=taskloom"
    assert "55w0rd" not in (tmp_path / "arguments").read_text()


@pytest.mark.on_postgres
def test_a_pooler_is_refused_since_it_would_keep_the_settings_of_pg_dump(
    database_url: str, tmp_path: Path
) -> None:
    (tmp_path / "artifacts").mkdir()
    settings = {"TASKLOOM_ARTIFACT_ROOT": str(tmp_path / "artifacts")}
    with pooled(database_url, "transaction") as url:
        output = run(tmp_path / "backups", status=1, TASKLOOM_DATABASE_URL=url, **settings)
        database = Database(url)
        assert migrate.is_current(database)
        database.close()
    assert "give a URL of PostgreSQL itself" in output
    assert backups(tmp_path / "backups") == []
