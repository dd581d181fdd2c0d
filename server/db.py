"""The database: engine, transactions, and the clock by which leases expire."""

from __future__ import annotations

import contextlib
import datetime
import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import orjson
from sqlalchemy import JSON, Double, Engine, MetaData, create_engine, event, func, select, text
from sqlalchemy.engine import Connection
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import DeclarativeBase, Session
from sqlalchemy.pool import ConnectionPoolEntry
from sqlalchemy.sql.functions import FunctionElement

from taskloom.server import database_url, postgres
from taskloom.server.clock import Clock, Reading
from taskloom.server.errors import DatabaseUnavailable, NotFound, StartRefused

OLDEST_SQLITE = (3, 38)  # the operator ->; RETURNING is of 3.35
AGAIN = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_PROTOCOL")  # errors by which another process delays this one
CLOCK = "clock"  # key in a writing session's `info` of its database's clock
FACTS = "facts"  # key in a session's `info` of the facts that are announced after its commit
FIRST_S, LAST_S = -62_135_596_800.0, 253_402_300_799.0  # the years 1 to 9999 since 1970


class Base(DeclarativeBase):
    """Every table. Instants are `*_at`: seconds since 1970 UTC by the database's clock."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {  # noqa: RUF012
        dict[str, Any]: JSON(none_as_null=True),
        list[int]: JSON(none_as_null=True),
        list[str]: JSON(none_as_null=True),
        float: Double,
    }


Row = TypeVar("Row", bound=Base)

# For tables whose ids appear in links and spools: the id of a deleted row is never reused.
LASTING_IDS = {"sqlite_autoincrement": True}  # PostgreSQL's sequences never reuse ids


class db_now(FunctionElement[float]):
    """The database's clock, seconds since 1970."""

    type = Double()
    inherit_cache = True


@compiles(db_now, "sqlite")
def _sqlite_now(*_: Any, **__: Any) -> str:
    return "((julianday('now') - 2440587.5) * 86400.0)"


@compiles(db_now, "postgresql")
def _postgres_now(*_: Any, **__: Any) -> str:
    # Not now(): it is constant during a transaction, which may have waited for a lock.
    return "extract(epoch from clock_timestamp())::double precision"


def one_of(column: str, states: tuple[str, ...]) -> str:
    """SQL: the column has one of the states."""
    return f"{column} IN ({', '.join(repr(state) for state in states)})"


TROUBLE = {  # by SQLite's names of errors, and PostgreSQL's codes
    ("SQLITE_FULL", "53100"): "the database's disk is full; nothing was changed",
    ("SQLITE_READONLY", "25006"): "the database is read-only",
    ("SQLITE_BUSY", "SQLITE_LOCKED", "55P03"): "the database is locked by another process; try again",
    ("SQLITE_IOERR", "SQLITE_CANTOPEN"): "the database's file cannot be read or written",
    ("SQLITE_CORRUPT", "SQLITE_NOTADB"): "the database's file is damaged",
    ("57014",): "the database ended a statement at its time limit; raise statement_timeout for the server's role",
    ("53300",): "the database has too many connections; try again",
}
NO_LOCKS = ("SQLITE_IOERR_LOCK", "SQLITE_IOERR_SHM", "SQLITE_IOERR_UNLOCK", "SQLITE_IOERR_RDLOCK")


def trouble(error: DBAPIError) -> str:
    """Describe why the database does not work."""
    code = str(getattr(error.orig, "sqlite_errorname", None) or getattr(error.orig, "sqlstate", None) or "")
    for codes, sentence in TROUBLE.items():
        if code.startswith(codes):
            return sentence
    return "the database does not answer; try again"


def unusable(database: Database, error: DBAPIError) -> StartRefused:
    """The refusal to start with a database that does not work."""
    code = str(getattr(error.orig, "sqlite_errorname", ""))
    hint = "; SQLite needs a file system with locks and shared memory" if code.startswith(NO_LOCKS) else ""
    return StartRefused(f"the database {database.name} cannot be used: {' '.join(str(error.orig).split())}{hint}")


def utc(at: float) -> datetime.datetime:
    """An instant as it appears in answers, which know the years 1 to 9999; time zones lead beyond."""
    return datetime.datetime.fromtimestamp(min(max(at, FIRST_S), LAST_S), datetime.UTC)


class Database:
    """Short transactions on one engine. `read` writes nothing; `write` commits at its end. Raises StartRefused for a
    URL or driver that cannot be used, also when it connects."""

    def __init__(self, url: str, busy_timeout_s: float = 30.0, read_only: bool = False) -> None:
        parsed = database_url.parse(url)
        kind = parsed.get_backend_name()
        if kind == "postgresql":
            parsed = parsed.set(drivername="postgresql+psycopg")
            postgres.load(parsed)
        elif kind != "sqlite":
            raise StartRefused(f"database {kind} is not known; {database_url.ACCEPTED}")
        elif parsed.database in (None, "", ":memory:"):
            raise StartRefused("SQLite in memory would forget every result; use sqlite:///FILE")
        elif parsed.query:
            raise StartRefused(f"SQLite takes no options in its URL ({', '.join(parsed.query)}); use sqlite:///FILE")
        elif sqlite3.sqlite_version_info < OLDEST_SQLITE:
            raise StartRefused(
                f"SQLite {'.'.join(map(str, OLDEST_SQLITE))} or later is needed, and this Python has "
                f"{sqlite3.sqlite_version}; use a newer Python, or PostgreSQL"
            )
        else:
            parsed = parsed.set(drivername="sqlite")
        self.is_sqlite = kind == "sqlite"
        self.name = str(parsed.database)
        options: dict[str, Any] = {}
        if not self.is_sqlite:
            options |= {"connect_args": postgres.CONNECT, "isolation_level": postgres.ISOLATION}
        if read_only and not self.is_sqlite:
            # For each transaction: a pooler would refuse it as an option, and would keep it for others as a setting.
            options["execution_options"] = {"postgresql_readonly": True}
        try:
            self.engine: Engine = create_engine(
                parsed, pool_size=10, max_overflow=40, hide_parameters=True, json_deserializer=_read_json, **options
            )
        except ArgumentError:  # such as a host of SQLite, or a port among the options that is no number
            raise database_url.unreadable(url) from None
        if self.is_sqlite:
            _prepare_sqlite(self.engine, busy_timeout_s, read_only)
        else:
            postgres.prepare(self.engine)
        self._file = Path(str(parsed.database)) if self.is_sqlite else None
        self._file_id: tuple[int, int] | None = None
        self.clock = Clock()
        self._closed = False
        self._writing = self.engine.execution_options(writes=True)
        # On PostgreSQL a transaction costs two round trips, and at READ COMMITTED each statement sees its own snapshot.
        autocommit = self.engine.execution_options(isolation_level="AUTOCOMMIT")
        self._reading = self.engine if self.is_sqlite or read_only else autocommit
        # SQLite counts commits separately for each connection, so `mark` always uses the same one.
        self._watching = create_engine(parsed, pool_size=1, max_overflow=0) if self.is_sqlite else autocommit
        for engine in {self.engine, self._watching}:
            event.listen(engine, "checkin", self._returned)
        self.on_fact: Callable[[object], None] = lambda _: None  # called with the facts of each committed transaction
        # SQLite has one writer. Threads of this process queue here rather than in its busy handler, which sleeps.
        self._turn: contextlib.AbstractContextManager[Any] = (
            threading.Lock() if self.is_sqlite else contextlib.nullcontext()
        )

    @contextlib.contextmanager
    def read(self, snapshot: bool = False) -> Iterator[Session]:
        """A session that only reads. snapshot: all its statements see the database as it was at the first one, and rows
        may be read in pieces. On SQLite both always hold.
        """
        self.check_file()
        with Session(self.engine if snapshot else self._reading, expire_on_commit=False) as session:
            if snapshot and not self.is_sqlite:
                session.connection(execution_options={"isolation_level": "REPEATABLE READ"})
            yield session

    @contextlib.contextmanager
    def write(self) -> Iterator[Session]:
        """A session that commits at its end. The facts that it announced are then passed to `on_fact`."""
        self.check_file()
        with self._turn, Session(self._writing, expire_on_commit=False) as session, session.begin():
            session.info[CLOCK] = self.clock
            yield session
        for fact in session.info.get(FACTS, ()):
            self.on_fact(fact)

    def check_file(self) -> None:
        """Check that SQLite's path still leads to the file that is open. Raises DatabaseUnavailable."""
        if self._file is None:
            return
        try:
            status = self._file.stat()
            found = status.st_dev, status.st_ino
        except OSError:
            found = None
        if self._file_id is None:
            self._file_id = found
        elif found != self._file_id:
            raise DatabaseUnavailable(
                f"the database's file {self._file} was moved, deleted or replaced while it was in use; put it back, or "
                "restart the server to use what is there now"
            )

    def mark(self) -> object:
        """A value that changes with every commit of any process; it needs no table."""
        self.check_file()
        query = "PRAGMA data_version" if self.is_sqlite else "SELECT CAST(pg_current_snapshot() AS text)"
        with self._watching.connect() as connection:
            return connection.exec_driver_sql(query).scalar_one()

    def count(self, *tables: type[Base]) -> None:
        """Update PostgreSQL's statistics of tables to which many rows were added. Until its own daemon does so, within
        a minute, each claim would read and sort the whole queue, since a plan expects few queued runs."""
        if not self.is_sqlite:
            with self.write() as session:
                for table in tables:
                    session.execute(text(f"ANALYZE {table.__tablename__}"))

    @contextlib.contextmanager
    def migrating(self) -> Iterator[Connection]:
        """A connection in a write transaction for migrations, which may rebuild a table that others refer to.

        SQLite changes tables by copying them; dropping the old one would delete the rows that refer to it.
        """
        with self._writing.connect() as connection:
            if self.is_sqlite:
                _enforce_foreign_keys(connection, False)  # has no effect within a transaction
            try:
                with connection.begin():
                    yield connection
                    if self.is_sqlite and connection.exec_driver_sql("PRAGMA foreign_key_check").first() is not None:
                        raise RuntimeError("a migration left rows that refer to missing rows; it was rolled back")
            finally:
                if self.is_sqlite:
                    _enforce_foreign_keys(connection, True)

    def close(self) -> None:
        """Close every connection; connections in use close when they are returned."""
        self._closed = True
        self.engine.dispose()
        self._watching.dispose()

    def _returned(self, _: object, entry: ConnectionPoolEntry) -> None:
        if self._closed:
            entry.invalidate()


def _read_json(stored: str) -> Any:
    """The value of a JSON column. json.loads takes a fifth of the time of a list of runs, orjson a twentieth."""
    try:
        return orjson.loads(stored)
    except orjson.JSONDecodeError:  # NaN, which SQLite stores as Python writes it
        return json.loads(stored)


# Lock of a row that will be changed: no other transaction changes or locks it, but rows that refer to it may be added
# and changed (PostgreSQL: FOR NO KEY UPDATE; SQLite has one writer). FOR UPDATE would deadlock: on PostgreSQL a
# transaction that changes a row twice shares the row it refers to, so two runs that end at the same moment would both
# share their experiment and wait for each other.
LOCKED: dict[str, Any] = {"key_share": True}


def existing(session: Session, kind: type[Row], key: int | str, lock: bool = False) -> Row:
    """The row with this key; with `lock`, LOCKED and read anew. Raises NotFound."""
    row = session.get(kind, key, with_for_update=LOCKED if lock else None, populate_existing=lock)
    if row is None:
        raise NotFound(f"there is no {kind.__tablename__} {key}")
    return row


def tell(session: Session, fact: object) -> None:
    """Announce a fact to `on_fact` once the transaction has committed."""
    session.info.setdefault(FACTS, []).append(fact)


def hold(session: Session, name: str) -> None:
    """Hold a lock with this name until the end of the transaction, where there is no row to lock yet."""
    if session.get_bind().dialect.name == "postgresql":  # SQLite has one writer
        session.execute(select(func.pg_advisory_xact_lock(func.hashtextextended(name, 0))))


NOW = select(db_now())  # built once: nearly every request asks


def now(session: Session) -> float:
    """The database's time."""
    return session.execute(NOW).scalar_one()


def read_clock(session: Session) -> Reading:
    """The database's time, to be compared with the monotonic clock."""
    clock: Clock = session.info[CLOCK]
    before_s = clock.monotonic()
    return Reading(now(session), before_s, clock.monotonic())


def steady_now(session: Session) -> float:
    """The database's time in a write transaction, for decisions about leases. Raises ClockJumped."""
    reading = read_clock(session)
    session.info[CLOCK].check(reading)
    return reading.at


def _prepare_sqlite(engine: Engine, busy_timeout_s: float, read_only: bool) -> None:
    """Set WAL, durable commits and foreign keys. Transactions are begun explicitly, so that a writing one takes its
    lock at once."""

    @event.listens_for(engine, "connect")
    def connect(connection: sqlite3.Connection, _: ConnectionPoolEntry) -> None:
        connection.isolation_level = None
        connection.create_function("lower", 1, _lower, deterministic=True)  # SQLite's own knows ASCII only
        for pragma in (
            f"busy_timeout = {int(busy_timeout_s * 1000)}",
            "synchronous = FULL",  # a result is acknowledged only when it would survive a power cut
            "foreign_keys = ON",
        ):
            connection.execute(f"PRAGMA {pragma}").close()
        _use_wal(connection, time.monotonic() + busy_timeout_s)
        if read_only:
            connection.execute("PRAGMA query_only = ON").close()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get("writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _lower(text: str | None) -> str | None:
    return None if text is None else str(text).lower()


def _enforce_foreign_keys(connection: Connection, on: bool) -> None:
    driver: Any = connection.connection.driver_connection
    driver.execute(f"PRAGMA foreign_keys = {'ON' if on else 'OFF'}").close()


def _use_wal(connection: sqlite3.Connection, until: float) -> None:
    """Switch the file to WAL, permanently. Retries, since SQLite does not wait if two processes do so at the same
    time."""
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").close()
            return
        except sqlite3.OperationalError as error:  # others, such as of a full disk, would not end
            if not error.sqlite_errorname.startswith(AGAIN) or time.monotonic() >= until:
                raise
            time.sleep(0.01)
