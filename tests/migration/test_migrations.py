import gzip
import json
import shutil
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, text

from taskloom.server import migrate
from taskloom.server.db import Database
from taskloom.server.errors import StartRefused
from taskloom.server.schema import METADATA

NEW_EXPERIMENT = """
    INSERT INTO experiment (name, request, request_sha256, owner, runs, created_at)
    VALUES ('kept', '{}', '', 'local', 0, 0)
"""
RELEASES = sorted((Path(__file__).parents[1] / "golden").glob("release_*.json.gz"))
LATER = """
from alembic.op import batch_alter_table

revision, down_revision = "9998", "HEAD"


def upgrade():
    with batch_alter_table("experiment") as experiment:
        experiment.alter_column("name", new_column_name="title")
"""


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def new_database(request, tmp_path):
    """Make databases of one kind; all are closed at the end."""
    made: list[Any] = []

    def make():
        if request.param == "sqlite":
            url = f"sqlite:///{tmp_path}/{len(made)}.db"
        else:
            url = request.getfixturevalue("postgres").new()
        made.append(Database(url))
        return made[-1]

    yield make
    for database in made:
        database.close()


@pytest.fixture
def database(new_database):
    return new_database()


def checks(connection):
    """Every CHECK constraint by table and name, and SQLite's tables whose ids are never given again. Alembic's
    autogenerate compares neither."""
    found = inspect(connection)
    lasting = "SELECT name, 'AUTOINCREMENT' FROM sqlite_master WHERE sql LIKE '%AUTOINCREMENT%'"
    sqlite = connection.dialect.name == "sqlite"
    ids = {(table, "id"): kind for table, kind in connection.execute(text(lasting))} if sqlite else {}
    return ids | {(t, c["name"]): c["sqltext"] for t in found.get_table_names() for c in found.get_check_constraints(t)}


def assert_tables_of_the_models(database, made):
    """A database has the tables that the models describe, as `made`, which is empty, gets them."""
    with database.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, METADATA) == []
        migrated = checks(connection)
    METADATA.create_all(made.engine)
    with made.engine.connect() as connection:
        assert migrated == checks(connection)
    assert len(migrated) == 8 + 9 * database.is_sqlite


@pytest.mark.filterwarnings("ignore:.*expression-based index")  # which nothing compares on SQLite
def test_migrations_give_the_tables_that_the_models_describe(database, new_database):
    migrate.upgrade(database)
    assert_tables_of_the_models(database, new_database())


@pytest.mark.filterwarnings("ignore:.*expression-based index")
@pytest.mark.parametrize("release", RELEASES, ids=lambda path: path.name)
def test_the_database_of_a_release_gets_the_same_tables(release, tmp_path):
    """It fails if a migration that was released is edited, renamed or removed."""
    with sqlite3.connect(tmp_path / "old.db") as connection:
        connection.executescript("\n".join(json.loads(gzip.decompress(release.read_bytes()))["database"]))
    connection.close()
    old, new = (Database(f"sqlite:///{tmp_path}/{name}.db") for name in ("old", "new"))
    migrate.upgrade(old)
    assert_tables_of_the_models(old, new)
    for each in (old, new):
        each.close()


def test_migrations_go_back_to_nothing_and_forward_again(database):
    migrate.upgrade(database)
    with database.migrating() as connection:
        command.downgrade(migrate.config(connection), "base")
    with database.engine.connect() as connection:
        assert inspect(connection).get_table_names() == ["alembic_version"]
    assert not migrate.is_current(database)
    migrate.upgrade(database)
    assert migrate.is_current(database)


def test_an_upgrade_of_a_current_database_changes_nothing(database):
    migrate.upgrade(database)
    with database.write() as session:
        session.execute(text(NEW_EXPERIMENT))
    migrate.upgrade(database)
    with database.read() as session:
        assert session.execute(text("SELECT name FROM experiment")).all() == [("kept",)]


def test_a_later_migration_keeps_what_refers_to_a_table_that_it_changes(database, tmp_path, monkeypatch):
    """SQLite changes a table by copying it."""
    migrate.upgrade(database)
    with database.write() as session:
        session.execute(text(NEW_EXPERIMENT))
        session.execute(text("INSERT INTO experiment_tag SELECT id, 'tagged' FROM experiment"))
    shutil.copytree(migrate.SCRIPTS, tmp_path / "migrations")
    (tmp_path / "migrations/versions/9998_later.py").write_text(LATER.replace("HEAD", migrate.HEAD))
    monkeypatch.setattr(migrate, "SCRIPTS", tmp_path / "migrations")
    monkeypatch.setattr(migrate, "HEAD", "9998")
    assert not migrate.is_current(database)
    migrate.upgrade(database)
    assert migrate.is_current(database)
    with database.read() as session:
        joined = "experiment JOIN experiment_tag ON experiment.id = experiment_id"
        assert session.execute(text(f"SELECT title, tag FROM {joined}")).all() == [("kept", "tagged")]


@pytest.mark.parametrize("revision", ["0029", "9999"])  # of a version before the first one, and of a later one
def test_a_schema_that_no_migration_knows_is_refused_and_left_alone(database, revision):
    with database.engine.begin() as connection:
        connection.execute(text("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)"))
        connection.execute(text("INSERT INTO alembic_version VALUES (:revision)"), {"revision": revision})
    with pytest.raises(StartRefused, match=f"has schema {revision}, and this version knows 0030") as refused:
        migrate.upgrade(database)
    assert "\n" not in str(refused.value)
    with database.engine.connect() as connection:
        assert inspect(connection).get_table_names() == ["alembic_version"]


def test_an_id_is_never_given_again(database):
    migrate.upgrade(database)
    for expected in (1, 2):
        with database.write() as session:
            assert session.execute(text(f"{NEW_EXPERIMENT} RETURNING id")).scalar_one() == expected
            session.execute(text("DELETE FROM experiment"))


def test_a_migration_that_fails_leaves_nothing_behind(database):
    with database.engine.begin() as connection:
        connection.execute(text("CREATE TABLE result (x INTEGER)"))  # collides with one of the last tables
    with pytest.raises(Exception, match="already exists"):
        migrate.upgrade(database)
    with database.engine.connect() as connection:
        assert inspect(connection).get_table_names() == ["result"]


def test_servers_that_start_together_migrate_once(database):
    with ThreadPoolExecutor(4) as pool:
        twins = [Database(database.engine.url.render_as_string(hide_password=False)) for _ in range(4)]
        for done in [pool.submit(migrate.upgrade, twin) for twin in twins]:
            done.result()
    for twin in twins:
        twin.close()
    assert migrate.is_current(database)


def test_revisions_form_one_line():
    scripts = ScriptDirectory.from_config(migrate.config())
    assert scripts.get_heads() == [migrate.HEAD]
    assert all(not isinstance(script.down_revision, tuple) for script in scripts.walk_revisions())


def test_an_unmigrated_database_is_not_current(database):
    assert not migrate.is_current(database)
