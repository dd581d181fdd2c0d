"""`python -m taskloom.server` as a process."""

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import psutil
import pytest

from gpt2core.spec.version import version
from tests.support.patience import DEADLINE_S, until
from tests.support.processes import has_ended


@pytest.fixture
def start(tmp_path):
    """Start the server, which is stopped at the end if it still runs."""
    started = []

    def start(*arguments, database="test.db", url=None, within=(), **environment):
        url = url or f"sqlite:///{tmp_path}/{database}"
        command = [*within, sys.executable, "-P", "-m", "taskloom.server", "--database-url", url, *arguments]
        environment = {**os.environ, "TMPDIR": str(tmp_path), **environment}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def listening(process):
    line = process.stdout.readline()
    assert line, process.stderr.read()
    event = json.loads(line)
    assert event["event"] == "listening"
    return event["url"]


def test_a_free_port_is_taken_and_named(start, tmp_path):
    process = start("--port", "0", "--port-file", str(tmp_path / "port"))
    url = listening(process)
    assert (tmp_path / "port").read_text() == url.rpartition(":")[2] + "\n"
    assert httpx.get(f"{url}/readyz").json() == {"status": "ready"}


@pytest.mark.parametrize("abstract", [False, True])
def test_systemd_learns_that_the_server_listens(start, tmp_path, abstract):
    name = f"@taskloom-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as service:
        service.bind(name.replace("@", "\0"))
        service.settimeout(DEADLINE_S)
        process = start("--port", "0", "--port-file", str(tmp_path / "port"), NOTIFY_SOCKET=name)
        assert service.recv(100) == b"READY=1"
    assert httpx.get(f"{listening(process)}/readyz").json() == {"status": "ready"}


def test_a_server_that_cannot_reach_systemd_serves_and_says_so(start, tmp_path):
    process = start("--port", "0", NOTIFY_SOCKET=str(tmp_path / "missing"))
    url = listening(process)
    assert httpx.get(f"{url}/readyz").json() == {"status": "ready"}
    process.terminate()
    assert "systemd does not learn" in process.communicate(timeout=DEADLINE_S)[1]


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_stop_answers_those_who_wait_and_is_no_failure(start, number):
    process = start("--port", "0")
    url = listening(process)
    identity = {"worker_id": "w1", "boot_id": "b"}
    registration = {**identity, "node": "n", "cores": [0], "memory_bytes": 1}
    registered = httpx.post(f"{url}/api/v1/workers", json=registration).json()
    answers = []

    def wait():
        answer = httpx.post(f"{url}/api/v1/leases", json={**identity, "wait_s": 25}, timeout=DEADLINE_S)
        answers.append(answer.status_code)

    waiter = threading.Thread(target=wait)
    waiter.start()
    pause = threading.Event()
    while httpx.get(f"{url}/api/v1/workers/w1").json()["seen_at"] == registered["seen_at"]:
        pause.wait(0.02)
    process.send_signal(number)
    waiter.join(20)
    assert answers == [204]
    assert process.wait(20) == 0


@pytest.mark.parametrize("path", ["missing/port", "", "file/port"])
def test_a_port_file_that_cannot_be_written_is_refused_before_the_start(start, tmp_path, path):
    (tmp_path / "file").touch()
    out, err = start("--port", "0", "--port-file", str(tmp_path / path)).communicate(timeout=DEADLINE_S)
    assert out == ""
    assert err.startswith(f"taskloom: port_file = '{tmp_path / path}' is not accepted: "), err
    assert err.count("\n") == 1
    assert not (tmp_path / "test.db").exists()


def test_a_port_in_use_is_said_clearly(start):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = start("--port", str(port))
        out, err = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, out) == (2, "")
    assert f"port {port} on 127.0.0.1 cannot be used: Address already in use" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "host", ["0.0.0.0", *(pytest.param(each, marks=pytest.mark.slow) for each in ("::", "192.0.2.1"))]
)
def test_a_public_address_is_refused_without_an_admin_key(start, host):
    process = start("--port", "0", "--host", host)
    _, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 2
    assert "there is no admin key; create one with `python -m taskloom.server keys create --scope admin`" in err
    assert "Traceback" not in err


def keys(tmp_path, *arguments, status=0):
    """What `python -m taskloom.server keys` prints."""
    program = [sys.executable, "-P", "-m", "taskloom.server", "keys"]
    command = [*program, "--database-url", f"sqlite:///{tmp_path}/test.db", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout if status == 0 else done.stderr


@pytest.mark.slow
def test_a_key_made_on_the_machine_lets_the_server_listen_to_others(start, tmp_path):
    token = keys(tmp_path, "create", "--scope", "admin", "--expires-in", "1", "--name", "operator").strip()
    process = start("--port", "0", "--host", "0.0.0.0")
    port = listening(process).rpartition(":")[2]
    url = f"http://127.0.0.1:{port}"
    assert httpx.get(f"{url}/healthz").json() == {"status": "ok", "version": version()}
    assert httpx.get(f"{url}/docs").status_code == 401
    assert httpx.get(f"{url}/api/v1/runs").status_code == 401
    answer = httpx.get(f"{url}/api/v1/runs", headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code == 200
    process.terminate()
    _, err = process.communicate(timeout=DEADLINE_S)
    assert token.rpartition("_")[2] not in err


@pytest.mark.slow
def test_keys_are_listed_and_revoked_on_the_machine(start, tmp_path):
    assert "admin for the first key" in keys(tmp_path, "create", "--scope", "read", status=2)
    keys(tmp_path, "create", "--scope", "admin")
    assert "name:" in keys(tmp_path, "create", "--scope", "read", "--name", "a;b", status=2)
    assert json.loads(keys(tmp_path, "revoke", "1"))["revoked_at"] is not None
    assert [json.loads(line)["id"] for line in keys(tmp_path, "list").splitlines()] == [1]
    file = tmp_path / "admin.key"
    keys(tmp_path, "create", "--scope", "admin", "-o", str(file))
    assert oct(file.stat().st_mode)[-3:] == "600"
    assert "never overwritten" in keys(tmp_path, "create", "--scope", "admin", "-o", str(file), status=2)
    keys(tmp_path, "revoke", "2")
    assert [json.loads(line)["id"] for line in keys(tmp_path, "list").splitlines()] == [1, 2]
    assert "no key 7" in keys(tmp_path, "revoke", "7", status=2)
    _, err = start("--port", "0", "--host", "0.0.0.0").communicate(timeout=DEADLINE_S)
    assert "there is no admin key" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--database-url", "mysql://x/y"], "mysql is not known"),
        pytest.param(["--database-url", "sqlite://"], "would forget every result", marks=pytest.mark.slow),
        pytest.param(["--database-url", "nonsense"], "nonsense is no database URL", marks=pytest.mark.slow),
        pytest.param(
            ["--database-url", "sqlite:////nowhere/at/all.db"], "unable to open database file", marks=pytest.mark.slow
        ),
        pytest.param(
            ["--port", "99999"], "'99999' is not accepted: a whole number of at least 0, at most 65535",
            marks=pytest.mark.slow,
        ),
        pytest.param(["--host", "no such host"], "no such host", marks=pytest.mark.slow),
    ],
)
def test_what_cannot_be_started_is_said_clearly(start, arguments, said):
    process = start("--port", "0", *arguments)
    _, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 2, err
    assert said in err
    assert "Traceback" not in err


@pytest.mark.slow
@pytest.mark.parametrize("schema", ["0029", "9999"])  # of a version before the first one, and of a later one
def test_a_database_that_this_version_cannot_migrate_is_said_clearly(start, tmp_path, schema):
    connection = sqlite3.connect(tmp_path / "test.db")
    connection.execute("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)")
    connection.execute("INSERT INTO alembic_version VALUES (?)", [schema])
    connection.commit()
    connection.close()
    process = start("--port", "0")
    _, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 2, err
    assert f"the database has schema {schema}" in err
    assert "Start the version that made it, or name another database (--database-url)" in err
    assert "Traceback" not in err


@pytest.mark.slow
def test_a_server_whose_disk_is_full_says_so_and_goes_on_when_there_is_room(start, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounting = 'mount -t tmpfs -o size=8m taskloom "$0" && exec "$@"'
    alone = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mounting, str(disk)]
    if subprocess.run([*alone, "true"], check=False).returncode != 0:
        pytest.skip("this system lets nobody mount a small disk")
    server = start("--port", "0", database="disk/test.db", within=alone)
    url = listening(server)
    seen = Path(f"/proc/{server.pid}/root{disk}")  # from the server's point of view
    with pytest.raises(OSError, match="No space left"):
        (seen / "filler").write_bytes(bytes(16 << 20))
    refused = httpx.get(f"{url}/readyz")
    assert refused.status_code == 503
    assert "disk is full" in refused.text or "No space left" in refused.text
    many = {"axes": {"seed": list(range(5000))}}
    refused = httpx.post(f"{url}/api/v1/experiments", json=many, timeout=DEADLINE_S)
    assert (refused.status_code, refused.json()["type"]) == (503, "/problems/database-unavailable")
    assert "disk is full; nothing was changed" in refused.json()["detail"]
    assert httpx.get(f"{url}/api/v1/experiments").json()["items"] == []
    (seen / "filler").unlink()
    until(lambda: httpx.get(f"{url}/readyz").status_code == 200, "the server to be ready again")
    assert httpx.post(f"{url}/api/v1/experiments", json={}).status_code == 201


@pytest.mark.slow
def test_two_servers_that_start_together_migrate_once(start, tmp_path):
    processes = [start("--port", "0", database="both.db") for _ in range(3)]
    urls = [listening(process) for process in processes]
    assert {httpx.get(f"{url}/readyz").status_code for url in urls} == {200}
    connection = sqlite3.connect(tmp_path / "both.db")
    assert connection.execute("SELECT count(*) FROM alembic_version").fetchall() == [(1,)]
    connection.close()


def test_a_killed_server_loses_nothing_that_it_acknowledged(start):
    first = start("--port", "0")
    url = listening(first)
    for i in range(5):
        assert httpx.post(f"{url}/api/v1/experiments", json={"name": str(i)}).status_code == 201
    first.kill()
    first.wait()
    url = listening(start("--port", "0"))
    assert [e["name"] for e in httpx.get(f"{url}/api/v1/experiments").json()["items"]] == ["4", "3", "2", "1", "0"]


def replicas_of(process):
    """Its server processes that are alive."""
    return {p for p in psutil.Process(process.pid).children() if p.status() != psutil.STATUS_ZOMBIE}


@pytest.fixture
def several(start, postgres, tmp_path):
    """Two server processes on one port."""
    root = {"TASKLOOM_ARTIFACT_ROOT": str(tmp_path / "artifacts")}
    process = start("--port", "0", "--workers", "2", url=postgres.new(), **root)
    process.url = listening(process)
    return process


@pytest.mark.slow
def test_several_processes_serve_one_port_replace_one_that_dies_and_end_together(several):
    first = replicas_of(several)
    assert len(first) == 2
    counters = Path(next(iter(first)).environ()["PROMETHEUS_MULTIPROC_DIR"])
    asked = 0

    def both_have_answered():
        nonlocal asked
        asked += 1
        assert httpx.get(f"{several.url}/healthz").status_code == 200  # a connection each
        return all((counters / f"counter_{replica.pid}.db").exists() for replica in first)

    until(both_have_answered)
    # Each of them reports the answers of all, including those of the dead one.
    line = f'taskloom_requests_total{{route="server_health",status="200"}} {asked}.0'
    until(lambda: line in httpx.get(f"{several.url}/metrics").text)  # requests count once the answer was sent
    dead = first.pop()
    dead.kill()
    until(lambda: len(replicas_of(several) - {dead}) == 2)
    until(lambda: line in httpx.get(f"{several.url}/metrics").text)
    # Waiting requests are answered when all processes end together.
    identity = {"worker_id": "w1", "boot_id": "b"}
    registration = {**identity, "node": "n", "cores": [0], "memory_bytes": 1}
    registered = httpx.post(f"{several.url}/api/v1/workers", json=registration).json()
    answers = []

    def wait():
        answer = httpx.post(f"{several.url}/api/v1/leases", json={**identity, "wait_s": 25}, timeout=DEADLINE_S)
        answers.append(answer.status_code)

    waiter = threading.Thread(target=wait)
    waiter.start()
    seen = f"{several.url}/api/v1/workers/w1"
    until(lambda: httpx.get(seen).json()["seen_at"] != registered["seen_at"])
    several.send_signal(signal.SIGTERM)
    assert several.wait(40) == 0
    waiter.join(20)
    assert answers == [204]
    printed = several.stderr.read()
    assert "Fatal Python error" not in printed
    assert '"level": "ERROR"' not in printed.partition("and is replaced")[2]


@pytest.mark.slow
def test_several_processes_do_not_outlive_the_one_that_started_them_nor_do_their_counters(several, tmp_path):
    replicas = replicas_of(several)
    counters = Path(next(iter(replicas)).environ()["PROMETHEUS_MULTIPROC_DIR"])
    assert counters.is_relative_to(tmp_path)
    stopped = next(iter(replicas))
    stopped.suspend()
    several.kill()
    clear_temporary_folders(tmp_path)
    assert counters.exists()  # one of them may still count
    stopped.resume()
    until(lambda: all(map(has_ended, replicas)))
    clear_temporary_folders(tmp_path)
    assert not counters.exists()


def clear_temporary_folders(parent):
    """Do what the next process of this user does."""
    program = "from gpt2core.process.temporary import TemporaryFolder; TemporaryFolder().close()"
    subprocess.run([sys.executable, "-P", "-c", program], env={**os.environ, "TMPDIR": str(parent)}, check=True)


def test_several_processes_take_postgresql(start):
    process = start("--port", "0", "--workers", "2")
    out, err = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, out) == (2, "")
    assert "--workers 2 needs PostgreSQL" in err
