"""What a connection may cost beside bodies: trailers, pipelined requests, large headers, and answers that nobody reads.
The server's threads are this process's, so its memory is measured here."""

import contextlib
import socket
from functools import partial

import psutil
import pytest

from tests.support.patience import DEADLINE_S, until

MIB = 1 << 20
CHUNKED = b"Transfer-Encoding: chunked\r\n"
GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture
def server(start_server):
    return start_server(send_timeout_s=0.5, linger_s=0.5)


@pytest.fixture
def connect(server):
    with contextlib.ExitStack() as opened:
        url = server.http.base_url
        yield lambda: opened.enter_context(socket.create_connection((url.host, url.port), timeout=DEADLINE_S))


def memory_bytes():
    return psutil.Process().memory_info().rss


def head(path, *more, method="GET"):
    return b"%s %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n" % (method.encode(), path.encode(), b"".join(more))


def send_until_closed(connection, piece, most_bytes):
    """Send until the server has closed the connection, or takes no more for a second; return the number of bytes."""
    connection.settimeout(1)
    sent_bytes = 0
    with contextlib.suppress(ConnectionError, TimeoutError):
        while sent_bytes < most_bytes:
            connection.sendall(piece)
            sent_bytes += len(piece)
    connection.settimeout(DEADLINE_S)
    return sent_bytes


def statuses(connection):
    """Status of every answer until the server closes the connection."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(65536):
            received += part
    return [int(answer[:3]) for answer in received.split(b"HTTP/1.1 ")[1:]]


ENDLESS = {
    "trailers": (b"0\r\n", b"X-Trailer: " + b"y" * 1000 + b"\r\n"),
    "small trailers": (b"0\r\n", b"a:b\r\n" * 200),
    "one trailer": (b"0\r\nX-Trailer: ", b"y" * 1000),
    "an extension of a chunk": (b"5;x=", b"y" * 1000),
}


@pytest.mark.parametrize("path", ["/healthz", "/api/v1/events"])
@pytest.mark.parametrize("kind", ENDLESS)
@pytest.mark.alone
@pytest.mark.both_databases
def test_what_follows_a_chunk_ends(connect, path, kind):
    """Also beside an answer that goes on for long, as that of the events does."""
    first, endless = ENDLESS[kind]
    before_bytes = memory_bytes()
    connections = [connect() for _ in range(4)]
    for connection in connections:
        connection.sendall(head(path, CHUNKED) + first)
        assert send_until_closed(connection, endless * 100, 40 * MIB) < 40 * MIB
        statuses(connection)  # it is closed
    assert memory_bytes() - before_bytes < 16 * MIB


@pytest.mark.parametrize("small_pieces", [False, True])
def test_a_trailer_is_no_header(start_server, small_pieces):
    api = start_server()
    token = api.post("/keys", {"scope": "admin"}, 201)["token"]
    url = api.http.base_url
    trailer = b"Authorization: Bearer " + token.encode() + b"\r\nConnection: close\r\n\r\n"
    sent = head("/api/v1/keys", CHUNKED, b"Connection: close\r\n") + b"0\r\n" + trailer
    with socket.create_connection((url.host, url.port), timeout=DEADLINE_S) as connection:
        for i in range(0, len(sent), 1 if small_pieces else len(sent)):
            with contextlib.suppress(ConnectionError):  # refused by its headers
                connection.sendall(sent[i : i + (1 if small_pieces else len(sent))])
        assert statuses(connection) in ([401], [])


@pytest.mark.alone
@pytest.mark.both_databases
def test_requests_behind_an_unanswered_one_wait_outside(connect):
    """A client that sends requests without reading is stopped by its own full buffers."""
    before_bytes = memory_bytes()
    connections = [connect() for _ in range(4)]
    for connection in connections:
        assert send_until_closed(connection, GET * 1000, 64 * MIB) < 64 * MIB
    assert memory_bytes() - before_bytes < 16 * MIB
    other = connect()
    other.sendall(head("/healthz", b"Connection: close\r\n"))
    assert statuses(other) == [200]


@pytest.mark.both_databases
def test_requests_behind_a_long_answer_are_bounded(server, connect):
    before_bytes = memory_bytes()
    connection = connect()
    connection.sendall(head("/api/v1/events"))
    assert send_until_closed(connection, GET * 1000, 32 * MIB) < 32 * MIB
    assert memory_bytes() - before_bytes < 16 * MIB
    assert server.context.in_flight._held_bytes < MIB
    connection.close()
    assert server.http.get("/healthz").status_code == 200


@pytest.mark.parametrize("before", [GET, head("/healthz", b"Content-Length: 3\r\n") + b"\r\n\r",
                                    head("/healthz", CHUNKED) + b"4\r\n\r\n\r\n\r\n0\r\n\r\n"])  # fmt: skip
def test_requests_in_one_packet_are_all_answered(connect, before):
    connection = connect()
    connection.sendall(before * 5 + head("/healthz", b"Connection: close\r\n"))
    assert statuses(connection) == [200] * 6


@pytest.mark.parametrize("cut", range(1, 9))
def test_requests_are_answered_wherever_packets_end(connect, cut):
    connection = connect()
    sent = GET * 3 + head("/healthz", b"Connection: close\r\n")
    for at in (len(GET) - cut, 2 * len(GET) - cut):
        connection.sendall(sent[:at] if at < len(GET) else sent[len(GET) - cut : at])
    connection.sendall(sent[2 * len(GET) - cut :])
    assert statuses(connection) == [200] * 4


@pytest.mark.parametrize(
    "headers", [b"X-Large: " + b"y" * 100_000 + b"\r\n", b"X-Many: yyyyyyyyyyyy\r\n" * 5000, b"a:b\r\n" * 5000]
)
@pytest.mark.both_databases
def test_headers_that_arrive_whole_are_bounded(connect, headers):
    connection = connect()
    with contextlib.suppress(ConnectionError):
        connection.sendall(head("/healthz", headers))
    assert statuses(connection) in ([431], [])


def test_a_large_head_is_taken(connect):
    connection = connect()
    large = b"X-Large: " + b"y" * 60_000 + b"\r\n"
    connection.sendall(head("/healthz", large, b"a:b\r\n" * 200, b"Connection: close\r\n"))
    assert statuses(connection) == [200]


def test_another_protocol_is_not_taken_up(connect):
    connection = connect()
    connection.sendall(head("/healthz", b"Connection: Upgrade\r\nUpgrade: h2c\r\n"))
    assert connection.recv(65536).startswith(b"HTTP/1.1 200")
    connection.sendall(head("/healthz", b"Connection: close\r\n"))
    assert statuses(connection) == [200]


def is_ended(connection):
    """Whether the server has reset the connection; its answers stay unread."""
    try:
        connection.send(b"G")
    except ConnectionError:
        return True
    return False


def unread_answers(api, opened):
    """A connection with more answers than the buffers of the system take."""
    assert api.http.get("/openapi.json").status_code == 200  # the first one is made, which takes seconds
    url = api.http.base_url
    connection = opened.enter_context(socket.socket())
    connection.settimeout(DEADLINE_S)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # before it connects
    connection.connect((url.host, url.port))
    connection.sendall(head("/openapi.json") * 20)
    return connection


def test_an_answer_that_nobody_reads_ends(server):
    with contextlib.ExitStack() as opened:
        connections = [unread_answers(server, opened) for _ in range(4)]
        for connection in connections:
            until(partial(is_ended, connection), "the end of an unread answer")
    until(lambda: not server.context.unread._timers)


def test_unread_answers_together_are_bounded(start_server):
    api = start_server(max_bytes_unread=128 << 10, send_timeout_s=3600)
    with contextlib.ExitStack() as opened:
        first, *others = [unread_answers(api, opened) for _ in range(8)]
        until(lambda: is_ended(first), "the end of the answer that has waited longest")
        assert api.context.unread._held_bytes() < MIB
        assert api.http.get("/healthz").status_code == 200
        assert not is_ended(others[-1])
