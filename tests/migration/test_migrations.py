import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, text

from gpt2core.spec.series import series_key
from taskloom.server import migrate
from taskloom.server.db import Database
from taskloom.server.queue.attempts import payload
from taskloom.server.queue.attempts.digest import digest
from taskloom.server.schema import METADATA


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def new_database(request, tmp_path):
    """Make databases of one kind; all are closed at the end."""
    made = []

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
    """Every CHECK constraint by table and name. Alembic's autogenerate does not compare them."""
    found = inspect(connection)
    return {(t, c["name"]): c["sqltext"] for t in found.get_table_names() for c in found.get_check_constraints(t)}


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
    assert len(migrated) == 7


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
        session.execute(text("INSERT INTO experiment (name, request, request_sha256, owner, runs, created_at) "
                             "VALUES ('kept', '{}', '', 'local', 0, 0)"))  # fmt: skip
    migrate.upgrade(database)
    with database.read() as session:
        assert session.execute(text("SELECT name FROM experiment")).all() == [("kept",)]


ROWS = """
    INSERT INTO api_key (id, name, scope, secret_sha256, created_at) VALUES (3, '', 'submit', '', 0);
    INSERT INTO experiment (id, name, request, request_sha256, idempotency_key, runs, created_at) VALUES
        (4, 'a', '{}', '', 'k', 2, 1), (5, 'b', '{"confirms": 6}', '', 'confirm run 6', 1, 2);
    INSERT INTO experiment_key (experiment_id, key_id) VALUES (4, 3);
    INSERT INTO block (experiment_id, number) VALUES (4, 0), (5, 0);
    INSERT INTO worker (worker_id, boot_id, node, cores, core_set, memory_bytes, labels, software, topology,
        registered_at, seen_at) VALUES ('w1', '', 'n', '[0]', '0', 1, '{}', '{}', '{}', 0, 0);
    INSERT INTO run (id, experiment_id, position, block, repetition, variant, spec, shape, rank, cores_needed,
        pinned_cores, memory_needed_bytes, timeout_s, state, attempts, losses, created_at, queued_at, finished_at)
        VALUES (6, 4, 0, 0, 1, '{}', '{}', '', 0, 1, '', 1, 1, 'succeeded', 2, 1, 1, 1, 9),
               (7, 4, 1, 0, 2, '{}', '{}', '', 0, 1, '', 1, 1, 'failed', 0, 0, 1, 1, 8),
               (8, 5, 0, 0, 1, '{}', '{}', '', 0, 1, '', 1, 1, 'queued', 0, 0, 2, 2, NULL);
    INSERT INTO attempt (id, run_id, attempt_no, worker_id, boot_id, node, core_set, state, claimed_at, expires_at,
        deadline_at, finished_at) VALUES (10, 6, 1, 'w1', '', 'n', '0', 'lost', 3, 3, 3, 4),
                                         (11, 6, 2, 'w1', '', 'n', '0', 'succeeded', 5, 5, 5, 9);
    INSERT INTO result (attempt_id, run_id, outcome, sha256, payload, canonical, received_at)
        VALUES (11, 6, 'succeeded', 'h', 'p', true, 9)
"""


@pytest.fixture
def with_rows(database):
    """The schema before histories were stored, with rows in it."""
    migrate.upgrade(database)
    downgrade(database, "0009")
    with database.write() as session:
        for statement in ROWS.split(";"):
            session.execute(text(statement.replace(": 6", "\\: 6")))
        if not database.is_sqlite:
            for table, last in (("experiment", 5), ("run", 8), ("attempt", 11)):
                session.execute(text(f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), {last})"))
    return database


def rows(database, query):
    with database.read() as session:
        return list(map(tuple, session.execute(text(query))))


def test_what_is_known_of_the_past_becomes_history(with_rows):
    migrate.upgrade(with_rows)
    assert rows(with_rows, "SELECT id, owner, finished_at, alerts_at FROM experiment ORDER BY id") == [
        (4, "key:3", 9.0, 9.0), (5, "alerts", None, None),
    ]  # fmt: skip
    told = "SELECT at, verb, state, attempt_no, attempt_state, actor FROM run_event WHERE run_id = 6 ORDER BY id"
    assert rows(with_rows, told) == [
        (1.0, "submit", "queued", None, None, "key:3"),
        (3.0, "claim", "leased", 1, "leased", "worker:w1"),
        (4.0, "end", "queued", 1, "lost", "worker:w1"),
        (5.0, "claim", "leased", 2, "leased", "worker:w1"),
        (9.0, "end", "succeeded", 2, "succeeded", "worker:w1"),
    ]
    assert rows(with_rows, "SELECT count(*) FROM result JOIN attempt ON attempt.id = attempt_id") == [(1,)]
    downgrade(with_rows, "0009")
    assert rows(with_rows, "SELECT id, idempotency_key FROM experiment ORDER BY id") == [(4, "k"), (5, "confirm run 6")]
    assert rows(with_rows, "SELECT run_id, attempt_id, sha256 FROM result") == [(6, 11, "h")]


def test_results_that_are_there_are_digested_and_unreadable_ones_left_out(with_rows, make_result, caplog):
    packed = payload.pack(json.dumps({"result": {**make_result(), "flagged": [[], ["switches"], [], []]}}))
    with with_rows.write() as session:
        session.execute(text("UPDATE result SET payload = :packed"), {"packed": packed})
        session.execute(
            text("INSERT INTO result (attempt_id, run_id, outcome, sha256, payload, canonical, received_at) VALUES "
                 "(10, 7, 'succeeded', 'h', :packed, true, 9)"), {"packed": b"garbled"},
        )  # fmt: skip
    migrate.upgrade(with_rows)
    assert "result of run 7 cannot be read" in caplog.text
    ((attempt_id, *parts),) = rows(with_rows, "SELECT attempt_id, facts, measured, causes FROM digest")
    assert attempt_id == 11
    assert list(map(bytes, parts)) == list(digest(payload.unpack(packed)["result"]).values())
    assert rows(with_rows, "SELECT node, flagged_steps FROM run WHERE id = 6") == [("n", 1)]
    ((phases,),) = rows(with_rows, "SELECT phase_s FROM run WHERE id = 6")
    assert "forward" in phases
    downgrade(with_rows, "0014")
    ((content,),) = rows(with_rows, "SELECT content FROM digest")
    assert json.loads(bytes(content))["flagged"] == [[], ["switches"], [], []]
    migrate.upgrade(with_rows)
    ((measured,),) = rows(with_rows, "SELECT measured FROM digest")
    assert bytes(measured) == bytes(parts[1])


def test_results_that_are_there_come_into_their_series(with_rows, make_result, caplog):
    def packed(**changes):
        return payload.pack(json.dumps({"result": make_result(**changes)}))

    insert = "INSERT INTO result (attempt_id, run_id, outcome, sha256, payload, canonical, received_at) VALUES "
    with with_rows.write() as session:
        session.execute(text("UPDATE result SET payload = :packed"), {"packed": packed()})
        other = packed(environment={"numba": "9"})
        session.execute(text(insert + "(10, 7, 'succeeded', 'h', :packed, true, 12)"), {"packed": other})
    migrate.upgrade(with_rows)
    told = "SELECT run.id, series.runs, series.last_at, series.node FROM run JOIN series ON series.id = series_id"
    assert rows(with_rows, told + " ORDER BY run.id") == [(6, 2, 12.0, "n1"), (7, 2, 12.0, "n1")]
    result = make_result()
    assert rows(with_rows, "SELECT key FROM series") == [(series_key(result["config"], result["environment"]),)]
    downgrade(with_rows, "0019")
    with with_rows.write() as session:
        session.execute(text("UPDATE digest SET facts = :garbled WHERE attempt_id = 10"), {"garbled": b"{}"})
    migrate.upgrade(with_rows)
    assert rows(with_rows, "SELECT runs FROM series") == [(1,)]
    assert "the facts of run 7 cannot be read" in caplog.text


@pytest.mark.parametrize(("table", "last"), [("run", 8), ("experiment", 5), ("attempt", 11)])
def test_an_id_is_never_given_again(with_rows, table, last):
    migrate.upgrade(with_rows)
    with with_rows.write() as session:
        copied = [c["name"] for c in inspect(session.connection()).get_columns(table) if c["name"] != "id"]
        values = {"position": "99", "attempt_no": "99", "idempotency_key": "NULL"}
        chosen = ", ".join(values.get(name, name) for name in copied)
        again = f"INSERT INTO {table} ({', '.join(copied)}) SELECT {chosen} FROM {table} WHERE id = {last} RETURNING id"
        before = session.execute(text(again)).scalar_one()
        session.execute(text(f"DELETE FROM {table} WHERE id = {before}"))
        assert [before, session.execute(text(again)).scalar_one()] == [last + 1, last + 2]


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
