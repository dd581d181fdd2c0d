"""Abuse of connections by unknown clients: each connection ends early, costs little, and does not block other
requests."""

import contextlib
import gzip
import json
import socket
import time

import psutil
import pytest

from tests.support.patience import DEADLINE_S, until

RESULT = "/api/v1/attempts/1/result"
MIB = 1 << 20


@pytest.fixture
def keyed(start_server):
    """A server that requires a key, which its client does not send."""
    api = start_server(
        header_timeout_s=0.5, body_timeout_s=0.5, linger_s=0.5, max_result_bytes=8 * MIB, max_bytes_in_flight=4 * MIB
    )
    api.tokens["admin"] = api.post("/keys", {"scope": "admin"}, 201)["token"]
    return api


@pytest.fixture
def connect(keyed):
    """A connection to the server, on which raw bytes are sent."""
    with contextlib.ExitStack() as opened:

        def connect():
            url = keyed.http.base_url
            return opened.enter_context(socket.create_connection((url.host, url.port), timeout=DEADLINE_S))

        yield connect


def head(path, *headers, method="PUT"):
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *headers, "", ""]).encode()


def read_answer(connection):
    """Status and problem of the answer."""
    status, body = read(connection)
    return status, json.loads(body)["type"].removeprefix("/problems/")


def read(connection):
    """Status and body of the answer, in any number of pieces."""
    with connection.makefile("rb") as file:
        status = int(file.readline().split()[1])
        length = 0
        while line := file.readline().strip():
            name, _, value = line.decode().partition(": ")
            length = int(value) if name == "content-length" else length
        return status, file.read(length)


def is_closed(connection):
    """Whether the server closes the connection within its time limit."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def authorised(api):
    return f"Authorization: Bearer {api.tokens['admin']}"


@pytest.mark.parametrize("key", [None, "tlk_99_" + "0" * 64, "nonsense"])
def test_a_key_is_looked_at_before_a_body_is_read(connect, key):
    connection = connect()
    sent = [] if key is None else [f"Authorization: Bearer {key}"]
    connection.sendall(head(RESULT, *sent, "Content-Type: application/json", f"Content-Length: {8 * MIB}"))
    assert read_answer(connection) == (401, "unauthenticated")  # before any of the body was sent
    assert is_closed(connection)


@pytest.mark.alone
def test_bodies_of_strangers_take_no_memory(connect):
    before = psutil.Process().memory_info().rss
    connections = [connect() for _ in range(8)]
    for connection in connections:
        connection.sendall(head(RESULT, "Content-Type: application/json", f"Content-Length: {8 * MIB}"))
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        for _ in range(7):
            for connection in connections:
                connection.sendall(b"x" * MIB)
    assert psutil.Process().memory_info().rss - before < 16 * MIB
    assert [read_answer(connection)[0] for connection in connections] == [401] * 8


def test_a_client_that_sends_all_of_its_body_first_hears_that_its_key_is_unknown(keyed):
    for _ in range(3):  # on one connection
        answer = keyed.http.put(RESULT, content=b"x" * 4 * MIB, headers={"Content-Type": "application/json"})
        assert answer.status_code == 401


def test_bytes_in_flight_are_bounded_over_all_requests(keyed, connect):
    first, second = connect(), connect()
    for connection in (first, second):
        sent = head(RESULT, authorised(keyed), "Content-Type: application/json", f"Content-Length: {3 * MIB}")
        connection.sendall(sent)
    first.sendall(b"x" * (3 * MIB - 1))
    until(lambda: keyed.context.in_flight._held_bytes >= 3 * MIB - 65536)
    second.sendall(b"x" * (2 * MIB))
    assert read_answer(second) == (503, "server-busy")
    first.sendall(b"x")
    assert read_answer(first) == (400, "malformed-body")
    until(lambda: keyed.context.in_flight._held_bytes == 0)


@pytest.mark.parametrize(
    "path", [RESULT, "/api/v1/experiments", "/api/v1/attempts/1/artifacts/a?worker_id=w&attempt_no=1"]
)
def test_a_body_that_does_not_come_ends(keyed, connect, path):
    if "artifacts" in path:
        keyed.use(keyed.tokens["admin"])
        keyed.submit()
        node = keyed.worker("w")
        node.claim()
        path += "&sha256=" + "0" * 64
    connection = connect()
    method = "POST" if "experiments" in path else "PUT"
    sent = head(path, authorised(keyed), "Content-Type: application/json", "Content-Length: 1000", method=method)
    connection.sendall(sent + b"x" * 10)
    assert read_answer(connection) == (408, "body-too-slow")
    assert is_closed(connection)


def test_a_body_that_keeps_up_may_take_long(start_server):
    """Each piece extends the time by a minute, so only the sum of the pauses exceeds the time of a body without a
    rate."""
    api = start_server(body_timeout_s=1.0, min_body_rate=100.0)

    def slowly():
        yield b"{" + b" " * 6000
        for _ in range(4):
            time.sleep(0.3)
            yield b" " * 6000
        yield b"}"

    answer = api.http.post("/api/v1/experiments", content=slowly(), headers={"Content-Type": "application/json"})
    assert answer.status_code == 201


@pytest.mark.parametrize("coding", ["gzip", "GZIP, br", "identity"])
def test_a_compressed_body_is_refused_and_never_unpacked(api, coding):
    packed = gzip.compress(b" " * 16 * MIB) if coding != "identity" else b"{}"
    headers = {"Content-Type": "application/json", "Content-Encoding": coding}
    answer = api.http.post("/api/v1/experiments", content=packed, headers=headers)
    if coding == "identity":
        assert answer.status_code == 201
    else:
        assert (answer.status_code, answer.json()["type"]) == (415, "/problems/unknown-media-type")
        assert "send no Content-Encoding" in answer.json()["detail"]


def test_an_endless_body_ends_where_nobody_reads_it(connect):
    connection = connect()
    connection.sendall(head("/healthz", "Transfer-Encoding: chunked", method="GET"))
    chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"

    def send():
        connection.sendall(chunk)
        return False

    with pytest.raises((BrokenPipeError, ConnectionResetError)):
        until(send, "the server to close the connection")


@pytest.mark.parametrize("end", [b"", b"X-Slow: 1\r\n"])
def test_headers_that_do_not_come_end(connect, end):
    connection = connect()
    connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + end)
    assert read_answer(connection) == (408, "headers-too-slow")
    assert is_closed(connection)


@pytest.mark.parametrize("before", [b"", b"\r\n"])
def test_a_connection_that_says_nothing_ends(connect, before):
    connection = connect()
    connection.sendall(before)
    if before:
        assert read_answer(connection)[0] == 408
    assert is_closed(connection)


def test_endless_headers_end(connect):
    connection = connect()
    connection.sendall(b"GET /healthz HTTP/1.1\r\n")
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        for i in range(2000):
            connection.sendall(b"X-%d: " % i + b"y" * 100 + b"\r\n")
    with contextlib.suppress(ConnectionResetError):
        assert read_answer(connection) == (431, "headers-too-large")


@pytest.mark.parametrize("key", [False, True])
def test_a_body_in_tiny_chunks_ends_at_once(keyed, connect, key):
    connection = connect()
    sent = [authorised(keyed)] if key else []
    connection.sendall(head(RESULT, *sent, "Content-Type: application/json", "Transfer-Encoding: chunked"))
    piece = b"1\r\nx\r\n" * 10_000
    sent_bytes = 0
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        while sent_bytes < 6 * MIB:
            connection.sendall(piece)
            sent_bytes += len(piece)
    assert is_closed(connection) or read_answer(connection)[0] in (400, 401)
    used_s = time.process_time()  # the server's threads are this process's
    assert keyed.http.get("/healthz").status_code == 200
    assert time.process_time() - used_s < 1


def test_a_body_in_chunks_of_a_line_each_is_taken(api):
    def lines():
        yield b'{"name": "x",'
        for _ in range(1000):
            yield b" " * 80
        yield b'"base": {}}'

    answer = api.http.post("/api/v1/experiments", content=lines(), headers={"Content-Type": "application/json"})
    assert answer.status_code == 201


def test_what_is_no_http_is_refused_as_a_problem(connect):
    connection = connect()
    connection.sendall(b"\x16\x03\x01 hello\r\n\r\n")
    assert read_answer(connection) == (400, "request-refused")


def test_requests_in_one_packet_are_answered_one_after_the_other(connect):
    connection = connect()
    connection.sendall(head("/healthz", method="GET") * 3)
    received = b""
    while received.count(b"HTTP/1.1 200") < 3:
        received += connection.recv(65536)


def test_many_large_requests_on_one_connection_are_no_headers(api):
    url, body = api.http.base_url, b'{"name": "x"}' + b" " * 60_000
    sent = head("/api/v1/experiments", "Content-Type: application/json", f"Content-Length: {len(body)}", method="POST")
    with socket.create_connection((url.host, url.port), timeout=DEADLINE_S) as connection:
        for apart in (False, True, False, True):
            for part in (sent, body) if apart else (sent + body,):
                connection.sendall(part)
                time.sleep(0.05 * apart)  # so that they are separate packets
            assert read(connection)[0] == 201
