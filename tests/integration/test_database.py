"""The database's connections."""

import contextlib

import psycopg
import pytest
from conftest import servers_on
from patience import until

from taskloom.server import migrate
from taskloom.server.db import Database
from taskloom.server.errors import StartRefused

pytestmark = pytest.mark.both_databases


def test_a_connection_in_use_when_the_database_is_closed_is_closed_once_it_is_returned(database_url):
    database = Database(database_url)
    with database.read() as session:
        connection = session.connection().connection.driver_connection
        database.close()
        connection.execute("SELECT 1")
    with contextlib.closing(connection), pytest.raises(Exception, match="closed"):
        connection.execute("SELECT 1")


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_a_database_that_cannot_store_every_name_is_refused(postgres, encoding):
    name = f"encoded_{encoding.lower()}"
    with psycopg.connect(postgres.uri, autocommit=True) as connection:
        locale = "TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
        connection.execute(f"CREATE DATABASE {name} ENCODING '{encoding}' {locale}")
    database = Database(postgres.uri.replace("/postgres?", f"/{name}?"))
    with pytest.raises(StartRefused, match=f"encoding is {encoding}.* ENCODING 'UTF8' TEMPLATE template0"):
        migrate.upgrade(database)
    database.close()


@pytest.mark.on_postgres
def test_names_are_stored_whatever_the_client_encoding_of_the_environment(database_url, tmp_path, monkeypatch):
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    with servers_on(f"{database_url}&client_encoding=SQL_ASCII", tmp_path / "artifacts") as start:
        api = start()
        api.submit(name="Größe 大きさ")
        assert [item["name"] for item in api.get("/experiments")["items"]] == ["Größe 大きさ"]


def test_the_mark_changes_where_something_was_committed_and_nowhere_else(api, start_server):
    mark = api.context.database.mark

    def stays():
        before = mark()
        api.get("/overview")
        return mark() == before

    until(stays, "a look that changes no mark")  # PostgreSQL's own background work may commit
    before = mark()
    api.submit()
    here = mark()
    assert here != before
    start_server().submit()  # another server commits
    assert mark() != here


def test_a_read_takes_a_transaction_only_for_a_snapshot(database_url):
    """On SQLite every read is a snapshot."""

    def in_transaction(session):
        connection = session.connection().connection.driver_connection
        connection.execute("SELECT 1")
        return connection.in_transaction if database.is_sqlite else connection.info.transaction_status.name != "IDLE"

    with contextlib.closing(Database(database_url)) as database:
        with database.read() as session:
            assert in_transaction(session) == database.is_sqlite
        with database.read(snapshot=True) as session:
            assert in_transaction(session)
        with database.write() as session:
            assert in_transaction(session)
