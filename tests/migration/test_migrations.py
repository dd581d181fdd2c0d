from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import JSON, MetaData, inspect, text

from taskloom.server import migrate
from taskloom.server.db import Database
from taskloom.server.errors import StartRefused
from taskloom.server.schema import METADATA

NEW_EXPERIMENT = """
    INSERT INTO experiment (name, request, request_sha256, owner, runs, created_at)
    VALUES ('kept', '{}', '', 'local', 0, 0)
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


def downgrade(database, revision):
    """Undo migrations down to `revision` ("base": all)."""
    with database.migrating() as connection:
        command.downgrade(migrate.config(connection), revision)


def checks(connection):
    """Every CHECK constraint by table and name, and SQLite's tables whose ids are never given again. Alembic's
    autogenerate compares neither."""
    found = inspect(connection)
    lasting = "SELECT name, 'AUTOINCREMENT' FROM sqlite_master WHERE sql LIKE '%AUTOINCREMENT%'"
    sqlite = connection.dialect.name == "sqlite"
    ids = {(table, "id"): kind for table, kind in connection.execute(text(lasting))} if sqlite else {}
    return ids | {(t, c["name"]): c["sqltext"] for t in found.get_table_names() for c in found.get_check_constraints(t)}


@pytest.mark.filterwarnings("ignore:.*expression-based index")  # which nothing compares on SQLite
def test_migrations_give_the_tables_that_the_models_describe(database, new_database):
    migrate.upgrade(database)
    with database.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, METADATA) == []
        migrated = checks(connection)
    made = new_database()
    METADATA.create_all(made.engine)
    with made.engine.connect() as connection:
        assert migrated == checks(connection)
    assert len(migrated) == 8 + 9 * database.is_sqlite


def test_migrations_go_back_to_nothing_and_forward_again(database):
    migrate.upgrade(database)
    downgrade(database, "base")
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


def test_the_first_migration_keeps_its_number():
    """It was the last one's before the migrations of development became one: databases of then are current."""
    assert ScriptDirectory.from_config(migrate.config()).get_base() == "0026"


@pytest.mark.parametrize("revision", ["0025", "9999"])
def test_a_schema_that_no_migration_knows_is_refused_and_left_alone(database, revision):
    with database.engine.begin() as connection:
        connection.execute(text("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)"))
        connection.execute(text("INSERT INTO alembic_version VALUES (:revision)"), {"revision": revision})
    with pytest.raises(StartRefused, match=f"has schema {revision}, and this version knows 0026") as refused:
        migrate.upgrade(database)
    assert "\n" not in str(refused.value)
    with database.engine.connect() as connection:
        assert inspect(connection).get_table_names() == ["alembic_version"]


def insert(connection, table, rows):
    """Insert rows; columns that must have a value and are not given get an empty one."""
    for row in rows:
        values = dict(row)
        for column in table.columns:
            needed = not column.nullable and column.server_default is None and column.name != "id"
            if needed and column.name not in values:
                values[column.name] = {} if isinstance(column.type, JSON) else column.type.python_type()
        connection.execute(table.insert().values(values))


def test_an_upgrade_names_the_commits_of_the_trainers_of_stored_results(database):
    with database.migrating() as connection:
        command.upgrade(migrate.config(connection), "0026")
    facts = ['{"environment": {"core_version": "0.1.0+gabcdef0.d01234567"}}', '{"environment": {"node": "n"}}']
    with database.engine.begin() as connection:
        tables = MetaData()
        tables.reflect(connection)
        rows = {
            "experiment": [{"name": "kept", "request": {}, "request_sha256": "", "owner": "local", "runs": 2}],
            "block": [{"experiment_id": 1}],
            "worker": [{"worker_id": "w"}],
            "run": [{"id": n, "experiment_id": 1, "environment_sha256": "e", "position": n,
                     "state": "succeeded", "finished_at": 1.0} for n in (1, 2)],
            "attempt": [{"id": n, "run_id": n, "worker_id": "w", "core_set": str(n), "state": "succeeded",
                         "finished_at": 1.0} for n in (1, 2)],
            "result": [{"attempt_id": n, "run_id": n, "canonical": True, "outcome": "succeeded"} for n in (1, 2)],
            "digest": [{"attempt_id": n, "facts": facts[n - 1].encode()} for n in (1, 2)],
        }  # fmt: skip
        for name, values in rows.items():
            insert(connection, tables.tables[name], values)
    migrate.upgrade(database)
    with database.read() as session:
        columns = "trainer_version, trainer_commit, trainer_dirty"
        found = session.execute(text(f"SELECT {columns} FROM run ORDER BY id")).all()
        assert [tuple(row) for row in found] == [("0.1.0+gabcdef0.d01234567", "abcdef0", None), (None, None, None)]
        assert session.execute(text("SELECT name, commit_id, branch FROM experiment")).all() == [("kept", None, None)]
    downgrade(database, "0026")
    with database.engine.connect() as connection:
        assert {"trainer_commit", "commit_id"}.isdisjoint(
            column["name"] for table in ("run", "experiment") for column in inspect(connection).get_columns(table)
        )
        assert connection.execute(text("SELECT count(*) FROM run")).scalar_one() == 2


def test_an_id_is_never_given_again(database):
    migrate.upgrade(database)
    for expected in (1, 2):
        with database.write() as session:
            assert session.execute(text(f"{NEW_EXPERIMENT} RETURNING id")).scalar_one() == expected
            session.execute(text("DELETE FROM experiment"))


def test_a_migration_that_fails_leaves_nothing_behind(database):
    with database.engine.begin() as connection:
        connection.execute(text("CREATE TABLE result (x INTEGER)"))  # collides with the last table
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


def test_an_upgrade_keeps_alerts_as_those_of_changes(database):
    with database.migrating() as connection:
        command.upgrade(migrate.config(connection), "0027")
    with database.engine.begin() as connection:
        tables = MetaData()
        tables.reflect(connection)
        rows = {
            "experiment": [{"name": "kept", "request": {}, "request_sha256": "", "owner": "local", "runs": 1}],
            "block": [{"experiment_id": 1}],
            "run": [{"id": 1, "experiment_id": 1, "state": "queued"}],
            "alert": [{"id": 7, "run_id": 1, "state": "confirmed", "ratio": 1.1}],
        }
        for name, values in rows.items():
            insert(connection, tables.tables[name], values)
    migrate.upgrade(database)
    with database.write() as session:
        found = session.execute(text("SELECT id, kind, state, ratio FROM alert")).all()
        assert found == [(7, "change", "confirmed", 1.1)]
        new = "INSERT INTO alert (kind, run_id, state, ratio, reason, raised_at, changed_at)"
        session.execute(text(f"{new} VALUES ('threshold', 1, 'above', 2, '', 0, 0)"))
    downgrade(database, "0027")
    with database.engine.connect() as connection:
        assert connection.execute(text("SELECT run_id, state FROM alert")).all() == [(1, "confirmed")]
