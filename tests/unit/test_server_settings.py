"""Settings of the server from the environment, and URLs of its database."""

import contextlib
import os
import sqlite3
import subprocess
import sys
import time

import pytest
from sqlalchemy.exc import OperationalError

from gpt2core.spec.settings import TRAINERS
from taskloom.contract import options
from taskloom.server import database_url, db
from taskloom.server.db import Database
from taskloom.server.errors import StartRefused
from taskloom.server.listening import resolve
from taskloom.server.settings import Settings
from tests.support.patience import DEADLINE_S

WRONG = {"float": "60s", "int": "1.5", "bool": "maybe"}


def types():
    """Every setting whose text can be wrong, with the name of its type."""
    for name, field in Settings.model_fields.items():
        for kind in WRONG:
            if kind in str(field.annotation):
                yield pytest.param(name, kind, id=name)
                break


@pytest.mark.parametrize(("name", "kind"), list(types()))
def test_a_value_that_is_not_accepted_is_named_with_its_variable(monkeypatch, name, kind):
    variable = f"TASKLOOM_{name.upper()}"
    monkeypatch.setenv(variable, WRONG[kind])
    accepted = {"float": "a number", "int": "a whole number", "bool": "true or false"}[kind]
    with pytest.raises(StartRefused) as raised:
        Settings.read()
    assert str(raised.value) == f"{variable} = {WRONG[kind]!r} is not accepted: {accepted}"


@pytest.mark.parametrize("name", list(Settings.model_fields))
def test_an_empty_variable_is_not_set(monkeypatch, name):
    monkeypatch.setenv(f"TASKLOOM_{name.upper()}", "")
    assert Settings.read() == Settings.model_validate({})


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("LEASE_S", "0", "a number above 0"),
        ("LEASE_S", "inf", "a finite number"),
        ("MAX_PAGE", "0", "1 or more"),
        ("WEBHOOK_TIMEOUT_S", "61", "60 or less"),
        ("ROOT_PATH", "x", "text of the form"),
    ],
)
def test_a_value_out_of_range_says_what_is_accepted(monkeypatch, name, value, accepted):
    monkeypatch.setenv(f"TASKLOOM_{name}", value)
    monkeypatch.setenv("TASKLOOM_POLL_S", "soon")
    with pytest.raises(StartRefused, match=f"TASKLOOM_{name} = '{value}' is not accepted: {accepted}") as raised:
        Settings.read()
    assert "TASKLOOM_POLL_S = 'soon' is not accepted: a number" in str(raised.value)  # every wrong one


@pytest.mark.parametrize(
    ("name", "meant"),
    [("MAX_NODE_HOUR", "MAX_NODE_HOURS"), ("LEASE_SEC", "LEASE_S"), ("OIDC_CLIENT_SECRET", "OIDC_CLIENT_SECRET_FILE")],
)
def test_a_misspelt_variable_is_named_without_its_value(monkeypatch, name, meant):
    monkeypatch.setenv(f"TASKLOOM_{name}", "s3cret")
    with pytest.raises(StartRefused) as raised:
        Settings.read()
    said = f"TASKLOOM_{name} is not accepted: no setting has this name; did you mean TASKLOOM_{meant}?"
    assert str(raised.value) == said


def test_variables_of_other_processes_and_of_users_are_none_of_the_servers(monkeypatch):
    others = {option.variable for option in (*options.WORKER, *options.PROVISION)} - {""}
    for name in (*others, *TRAINERS, "TASKLOOM_TOKEN", "TASKLOOM_COMMIT", "TASKLOOM_SITE", "TASKLOOM_NODE"):
        monkeypatch.setenv(name, "x")
    Settings.read()


@pytest.mark.parametrize(("heartbeat_s", "lease_s"), [("90", "60"), ("60", "60"), ("15", "10")])
def test_heartbeats_come_before_the_lease_ends(monkeypatch, heartbeat_s, lease_s):
    monkeypatch.setenv("TASKLOOM_HEARTBEAT_S", heartbeat_s)
    monkeypatch.setenv("TASKLOOM_LEASE_S", lease_s)
    refused = f"HEARTBEAT_S = {heartbeat_s} is not accepted: less than TASKLOOM_LEASE_S, {lease_s},"
    with pytest.raises(StartRefused, match=refused):
        Settings.read()


@pytest.mark.parametrize("name", ["WEBHOOK_TARGETS", "COMMITS_URL", "OIDC_ORIGIN", "LEASE_S"])
@pytest.mark.parametrize("secret", ["bot:s3cret", "bot:s3/cret", "bot:s3@cret", "s3cret"])
def test_no_message_tells_what_is_before_a_host(monkeypatch, name, secret):
    monkeypatch.setenv(f"TASKLOOM_{name}", f"ftp://{secret}@ci.example.org/hooks")
    with pytest.raises(StartRefused, match=f"TASKLOOM_{name} = 'ftp://\\*\\*\\*@ci.example.org/hooks' is not accepted"):
        Settings.read()


@pytest.mark.parametrize("url", ["sqlite:///a.db?mode=ro", "sqlite:///a.db?timeout=5&x=y"])
def test_options_in_the_url_of_sqlite_are_refused(url):
    with pytest.raises(StartRefused, match="SQLite takes no options in its URL"):
        Database(url)


@pytest.mark.parametrize(
    "option", ["pgbouncer=true", "prepare_threshold=0", "autocommit=true", "row_factory=x", "plugin=x", "w0rd=w0rd"]
)
def test_options_in_the_url_of_postgresql_are_those_of_its_client(option):
    """Others are those of other drivers and services, or arguments of our driver that no text can be."""
    with pytest.raises(StartRefused, match=f"has the option {option.partition('=')[0]}, which PostgreSQL's client"):
        Database(f"postgresql://u:p@host/name?sslmode=require&{option}")


def test_another_driver_in_the_url_is_ours(tmp_path):
    Database(f"sqlite+aiosqlite:///{tmp_path}/a.db").close()


UNREADABLE = [
    "postgresql://u:p@ss:w0rd/1@127.0.0.1:5432/taskloom", "postgresql://u:w0rd@pass@host/name",
    "postgresql://u:p@w0rd/taskloom@host/name", "postgresql://u:p@host:w0rd/name", "u:w0rd@host",
    "postgresql:/u:w0rd@host/name", "postgresql://u:p@w0rd=!/name", "sqlite:w0rd@x",
]  # fmt: skip


@pytest.mark.parametrize("url", UNREADABLE)
def test_a_url_that_cannot_be_read_is_refused_and_not_shown(url):
    with pytest.raises(StartRefused, match="write @ as %40, : as %3A, / as %2F") as raised:
        database_url.parse(url)
    assert "w0rd" not in str(raised.value)


@pytest.mark.parametrize("url", ["postgresql://u:w0rd@host/name?port=x", "sqlite://w0rd/a.db", "sqlite://u:w0rd@host/a"])
def test_a_url_that_no_connection_can_use_is_refused_and_not_shown(url):
    with pytest.raises(StartRefused, match="use sqlite:///FILE or postgresql") as raised:
        Database(url)
    assert "w0rd" not in str(raised.value)


@pytest.mark.parametrize("password", ["p/ss", "p:ss", "p?ss", "p#ss", "p[s", "p%40ss", "p w"])
def test_what_sqlalchemy_can_read_is_read(password):
    parsed = database_url.parse(f"postgresql://u:{password}@host:5433/name?sslmode=require")
    assert (parsed.password, parsed.host, parsed.port) == (password.replace("%40", "@"), "host", 5433)


@pytest.mark.parametrize(
    "url", ["postgresql://u@[::1]:5432/n", "postgresql://u@/n?host=/tmp/x", "postgresql://a,b:1/n"]
)
def test_addresses_sockets_and_lists_of_hosts_are_read(url):
    assert database_url.parse(url).database == "n"


@pytest.mark.parametrize("command", [["--port", "0"], ["--port", "0", "--json"], ["keys", "list"]], ids=" ".join)
@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("TASKLOOM_LEASE_S", "60s", "TASKLOOM_LEASE_S = '60s' is not accepted: a number"),
        ("TASKLOOM_DATABASE_URL", UNREADABLE[0], "the database URL cannot be read"),
    ],
)
def test_a_process_ends_with_one_line_and_exit_code_2(tmp_path, command, variable, value, message):
    done = subprocess.run(
        [sys.executable, "-P", "-m", "taskloom.server", *command], env={**os.environ, variable: value}, cwd=tmp_path,
        capture_output=True, text=True, timeout=DEADLINE_S, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert message in done.stderr
    assert "w0rd" not in done.stderr
    assert done.stderr.startswith('{"error": "') == ("--json" in command)


def test_keys_of_a_database_that_does_not_answer_end_with_one_line(tmp_path):
    done = subprocess.run(
        [sys.executable, "-P", "-m", "taskloom.server", "keys", "list"], cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "TASKLOOM_DATABASE_URL": "postgresql://u:w0rd@127.0.0.1:9/name"}, timeout=DEADLINE_S,
        check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "the database name cannot be used" in done.stderr
    assert "w0rd" not in done.stderr


def test_an_older_sqlite_is_refused_when_the_server_starts(tmp_path):
    """In a process whose sqlite3 has the version of RHEL 9."""
    older = "import sqlite3, sys; sqlite3.sqlite_version_info, sqlite3.sqlite_version = (3, 34, 1), '3.34.1'"
    program = f"{older}; sys.argv[1:] = ['--port', '0']; import taskloom.server.__main__ as m; sys.exit(m.main())"
    command = [sys.executable, "-P", "-c", program]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "SQLite 3.38 or later is needed, and this Python has 3.34.1" in done.stderr


@pytest.mark.parametrize("host", ["a..b", 70 * "x", ".", "256.1.1.1"])
def test_a_host_that_no_name_is_is_refused(host):
    with pytest.raises(StartRefused, match="port 0"):
        resolve(host, 0)


@pytest.mark.parametrize("url", [
    "sqlite:///a%00b", "postgresql://u:w0rd%00@h/d", "postgresql://u:w0rd@h/d%00", "postgresql://u:w0rd\udcff@h/d",
    "postgresql://u:w0rd@h/d?application_name=%00", "postgresql://u:w0rd@a..b/d", f"postgresql://u:w0rd@{70 * 'x'}/d",
    f"postgresql://u:w0rd@h:5432,{70 * 'x'}:5432/d",
])  # fmt: skip
def test_text_that_no_client_passes_on_is_refused_and_not_shown(url):
    with pytest.raises(StartRefused, match="the database URL cannot be read") as raised:
        Database(url)
    assert "w0rd" not in str(raised.value)


def test_an_error_that_does_not_end_is_raised_at_once(tmp_path):
    """Waiting helps only while another process holds the file."""
    sqlite3.connect(tmp_path / "a.db").execute("CREATE TABLE a (b)").connection.close()
    begun = time.monotonic()
    connection = sqlite3.connect(f"file:{tmp_path}/a.db?mode=ro", uri=True)
    with contextlib.closing(connection), pytest.raises(sqlite3.OperationalError, match="readonly"):
        db._use_wal(connection, begun + 60)
    assert time.monotonic() - begun < 30


@pytest.mark.parametrize(("name", "hints"), [("SQLITE_IOERR_SHMMAP", True), ("SQLITE_IOERR_LOCK", True),
                                             ("SQLITE_IOERR_WRITE", False)])  # fmt: skip
def test_a_file_system_without_locks_is_named_at_the_start(tmp_path, name, hints):
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorname = name
    database = Database(f"sqlite:///{tmp_path}/a.db")
    refusal = str(db.unusable(database, OperationalError("PRAGMA", None, error)))
    assert ("needs a file system with locks" in refusal) is hints
    assert "disk I/O error" in refusal
    database.close()
