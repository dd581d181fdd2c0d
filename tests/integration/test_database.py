"""The database's connections."""

import contextlib
import socket
import threading
from typing import Any

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError

from taskloom.server import migrate
from taskloom.server.db import Database, trouble
from taskloom.server.errors import StartRefused
from tests.support.patience import until
from tests.support.present import present
from tests.support.servers import servers_on

pytestmark = pytest.mark.both_databases


def test_a_connection_in_use_when_the_database_is_closed_is_closed_once_it_is_returned(database_url):
    database = Database(database_url)
    with database.read() as session:
        connection = present(session.connection().connection.driver_connection)
        database.close()
        connection.execute("SELECT 1")
    with contextlib.closing(connection), pytest.raises(Exception, match="closed"):
        connection.execute("SELECT 1")


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1", "EUC_JP"])
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
def test_a_database_that_rounds_numbers_is_refused(database_url, monkeypatch):
    """A cursor of a list is a number as it was read: a rounded one is beyond its row."""
    monkeypatch.setenv("PGOPTIONS", "-c extra_float_digits=0")
    database = Database(database_url)
    with pytest.raises(StartRefused, match="extra_float_digits is 0, which rounds numbers"):
        migrate.upgrade(database)
    database.close()


@pytest.mark.on_postgres
def test_a_time_limit_of_the_database_is_named(database_url, monkeypatch):
    monkeypatch.setenv("PGOPTIONS", "-c statement_timeout=20ms")
    database = Database(database_url)
    with database.read() as session, pytest.raises(DBAPIError) as raised:
        session.execute(text("SELECT pg_sleep(60)"))
    assert "raise statement_timeout" in trouble(raised.value)
    database.close()


@pytest.fixture
def silent_pooler(database_url):
    """The URL of the database through a relay that hides one parameter of the server's greeting."""
    folder = make_url(database_url).query["host"]
    ended = threading.Event()

    def carry(source, target, hidden):
        with contextlib.suppress(OSError):
            while part := source.recv(1 << 16):
                target.sendall(part.replace(b"server_encoding\0", hidden))
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def serve():
        while not ended.is_set():
            with contextlib.suppress(TimeoutError):
                client, _ = listener.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(f"{folder}/.s.PGSQL.5432")
                open_ends.extend((client, server))
                for ends in ((client, server, b"server_encoding\0"), (server, client, b"pooler_encoding\0")):
                    threads.append(threading.Thread(target=carry, args=ends))
                    threads[-1].start()

    threads: list[Any] = []
    open_ends: list[Any] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.05)
        threads.append(threading.Thread(target=serve))
        threads[0].start()
        url = make_url(database_url)
        yield f"postgresql://{url.username}@127.0.0.1:{listener.getsockname()[1]}/{url.database}"
        ended.set()
        for thread in list(threads):
            thread.join()
        for end in open_ends:
            end.close()


@pytest.mark.on_postgres
def test_an_encoding_that_a_pooler_does_not_report_is_queried(silent_pooler):
    database = Database(silent_pooler)
    assert migrate.is_current(database)
    database.close()


@pytest.mark.on_postgres
def test_transactions_are_isolated_as_we_say_whatever_is_the_databases_default(database_url):
    """At serializable, claims that cross would end with errors."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {make_url(database_url).database} "
                           "SET default_transaction_isolation = 'serializable'")  # fmt: skip
    database, reading = Database(database_url), Database(database_url, read_only=True)
    levels = []
    for opened in (database.write(), reading.read(), database.read(snapshot=True), reading.read(snapshot=True)):
        with opened as session:
            levels.append(session.execute(text("SHOW transaction_isolation")).scalar_one())
    assert levels == ["read committed", "read committed", "repeatable read", "repeatable read"]
    for each in (database, reading):
        each.close()


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
