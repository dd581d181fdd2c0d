"""The commands of docs/how-to/backup-and-restore.md while workers deliver: the restored server is complete."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from sqlalchemy import text

from taskloom import Client
from taskloom.server.db import Database
from tests.support.patience import DEADLINE_S
from tests.support.postgres_server import PROGRAMS, Postgres
from tests.support.processes import House, house, short_leases
from tests.support.runs import check_books, ended, submit, submit_many, succeeded

pytestmark = [pytest.mark.both_databases, pytest.mark.slow]
ROOT = Path(__file__).parents[2]
HOW_TO = ROOT / "docs/how-to/backup-and-restore.md"
RUNS = 40


def block(heading: str, language: str = "sh") -> str:
    """The code block in a language under a heading of the how-to."""
    section = HOW_TO.read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    return "\n".join(re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL))


def execute(heading: str, **variables: str) -> str:
    done = attempt(heading, **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def attempt(heading: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-eu", "-c", block(heading)], env={**os.environ, "PATH": PROGRAMS, **variables}, cwd=ROOT,
        capture_output=True, text=True, timeout=DEADLINE_S, check=False,
    )  # fmt: skip


def test_a_backup_made_under_load_restores_whole(
    home: House, client: Client, database_kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    leaving = home.start_worker("leaving")
    assert ended(client, submit(client)).state == "succeeded"  # with artifacts
    leaving.end()
    experiment = submit_many(client, RUNS)
    fleet = home.start_fleet(6)
    succeeded(client, experiment, 10)
    known = client.experiment(experiment).by_state["succeeded"]
    if database_kind == "sqlite":
        file = home.database_url.removeprefix("sqlite:///")
        restored = tmp_path / "restored.db"
        backup = execute("SQLite: back up", DATABASE=file, FOLDER=str(tmp_path / "backups"))
        succeeded(client, experiment, known + 1)  # workers delivered results during the backup
        execute("SQLite: restore", BACKUP=backup, RESTORED=str(restored))
        url, artifacts = f"sqlite:///{restored}", Path(f"{restored}.artifacts")
    else:
        postgres: Postgres = request.getfixturevalue("postgres")
        url, artifacts = postgres.new(), tmp_path / "restored-artifacts"
        places = {"DATABASE_URL": home.database_url, "ARTIFACTS": str(home.artifacts)}
        backup = execute("PostgreSQL: back up", **places, FOLDER=str(tmp_path / "backups"))
        succeeded(client, experiment, known + 1)
        places = {"RESTORED_URL": url, "RESTORED_ARTIFACTS": str(artifacts)}
        execute("PostgreSQL: restore", **places, BACKUP=backup)
    fleet.popen.send_signal(signal.SIGTERM)
    fleet.wait()
    check_restored(url, known)
    assert len([path for path in artifacts.glob("??/*") if path.is_file()]) == 2
    execute("Check a restored database", FOLDER=str(artifacts), ARTIFACTS="2")
    (tmp_path / "empty").mkdir()
    assert attempt("Check a restored database", FOLDER=str(tmp_path / "empty"), ARTIFACTS="2").returncode != 0
    (tmp_path / "again").mkdir()
    settings = {**short_leases(1.0, heartbeat_s=0.3, reap_after_s=0.0), "analysis_processes": 0}
    with house(tmp_path / "again", url, **settings) as again:
        again.start_fleet(6)
        with Client(again.url) as user:
            succeeded(user, experiment, RUNS)
        check_books(again, RUNS + 1)


def check_restored(url: str, known: int) -> None:
    """The how-to's own checks pass, and everything that existed before the backup began is there."""
    database = Database(url)
    with database.read() as session:
        for query in filter(str.strip, block("Check a restored database", "sql").split(";")):
            assert session.execute(text(query)).scalar_one() == 0, query
        count = "SELECT count(*) FROM run WHERE state = 'succeeded'"
        assert known + 1 <= session.execute(text(count)).scalar_one() <= RUNS + 1
    database.close()
