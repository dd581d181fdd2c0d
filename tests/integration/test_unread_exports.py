"""Exports that clients do not read, or leave: they take little of the server's memory and end. The server's threads are
this process's, so its memory is measured here."""

import contextlib
import csv
import io
import random
import socket

import psutil
import pytest

from tests.support.patience import DEADLINE_S, until

MIB = 1 << 20
STEPS = 20_000


@pytest.fixture
def server(start_server, make_result):
    """Two runs of many steps, whose exports are larger than the buffers of the system."""
    api = start_server(analysis_processes=1, exports_at_once=2, send_timeout_s=0.5)
    chance = random.Random(1)
    api.submit(axes={"seed": [1, 2]})
    node = api.worker()
    for _ in range(2):
        node.upload(node.claim(), make_result([chance.random() for _ in range(STEPS)]))
    return api


def request(api, opened, form):
    """A connection that requests an export and reads nothing of it."""
    url = api.http.base_url
    connection = opened.enter_context(socket.socket())
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # before it connects
    connection.settimeout(DEADLINE_S)
    connection.connect((url.host, url.port))
    connection.sendall(f"GET /api/v1/exports/steps?format={form} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return connection


def exports(api):
    return api.reading.exports


@pytest.mark.alone
@pytest.mark.both_databases
def test_unread_exports_take_little_memory_and_end(server):
    assert server.http.get("/api/v1/exports/steps").status_code == 200
    before_bytes = psutil.Process().memory_info().rss
    with contextlib.ExitStack() as opened:
        for form in ("csv", "parquet") * 3:
            request(server, opened, form)
        until(lambda: exports(server)._waiting, "exports to wait")
        assert psutil.Process().memory_info().rss - before_bytes < 32 * MIB
        assert server.http.get("/healthz").status_code == 200
        answer = server.http.get("/api/v1/exports/steps", params={"format": "csv"})  # waits for the unread ones to end
        assert len(list(csv.reader(io.StringIO(answer.text)))) == 2 * STEPS + 1
    until(lambda: not exports(server)._turns.borrowed_tokens and not exports(server)._waiting, "the end of all exports")


def test_an_export_ends_with_its_client_and_its_process_is_kept(server):
    before = set(psutil.Process().children())
    with contextlib.ExitStack() as opened:
        for each in [request(server, opened, "csv") for _ in range(6)][:2]:
            each.recv(1)
        writers = set(psutil.Process().children()) - before
        assert writers
    until(lambda: not exports(server)._turns.borrowed_tokens and not exports(server)._waiting, "the end of all exports")
    assert server.http.get("/api/v1/exports/steps").status_code == 200
    assert writers <= set(psutil.Process().children())


def test_more_exports_than_may_wait_are_refused(start_server, make_result):
    api = start_server(exports_at_once=1, max_questions=1, analysis_s=0.2, send_timeout_s=3600)
    api.submit()
    node = api.worker()
    node.upload(node.claim(), make_result([1.0] * 40_000))
    with contextlib.ExitStack() as opened:
        request(api, opened, "csv")
        until(lambda: exports(api)._turns.borrowed_tokens == 1)
        answer = api.http.get("/api/v1/exports/steps")
        assert (answer.status_code, answer.json()["type"]) == (503, "/problems/too-many-exports")
        assert answer.headers["Retry-After"] == "5"


def test_a_process_that_ends_in_the_middle_gives_no_complete_file(server):
    with contextlib.ExitStack() as opened:
        connection = request(server, opened, "csv")
        until(lambda: exports(server)._turns.borrowed_tokens == 1)
        assert connection.recv(4096)
        workers = until(psutil.Process().children, "the process that writes")
        for worker in workers:
            worker.kill()
        received = b""
        with contextlib.suppress(ConnectionResetError):
            while part := connection.recv(1 << 16):
                received += part
        assert not received.endswith(b"0\r\n\r\n")
