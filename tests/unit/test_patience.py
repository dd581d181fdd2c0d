"""Requests are repeated while a server starts or restarts, and no longer than that."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from gpt2core.spec.errors import ConfigError
from taskloom import Client, Problem, ServerUnreachable, patience
from taskloom.contract.experiments import ExperimentRequest
from taskloom.patience import Patience, starting_s
from tests.support.http_double import Script, scripted

RUN_LIST: dict[str, Any] = {"items": [], "next_cursor": None}


class Restarts:
    """A server that starts at the first check of a patient client. Its client's lines are kept."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.lines: list[str] = []
        self._stack = stack
        self._script: Script | None = None

    def start(self) -> None:
        if self._script is None:
            self._script = self._stack.enter_context(scripted(self.port))
            self._script.answer(200, RUN_LIST)

    def patience(self, starting_s: float, restarting_s: float) -> Patience:
        return Patience(starting_s, restarting_s, self.lines.append, self.start)


@pytest.fixture
def restarts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Restarts]:
    monkeypatch.setattr(patience, "EVERY_S", 0.01)
    with contextlib.ExitStack() as stack:
        yield Restarts(stack)


def test_a_server_that_is_just_starting_is_waited_for(restarts: Restarts) -> None:
    with Client(restarts.url, patience=restarts.patience(10, 0)) as client:
        assert list(client.runs()) == []
    assert restarts.lines == [f"waiting for the server {restarts.url} to start (at most 10 s)"]


def test_without_patience_it_is_not(restarts: Restarts) -> None:
    with pytest.raises(ServerUnreachable), Client(restarts.url, patience=restarts.patience(0, 120)) as client:
        list(client.runs())
    assert restarts.lines == []


def test_a_server_on_another_machine_is_not_waited_for(restarts: Restarts) -> None:
    with pytest.raises(ServerUnreachable):
        Client("http://no-such-host.invalid", patience=restarts.patience(10, 10)).experiment(1)
    assert restarts.lines == []


def test_a_wait_ends(restarts: Restarts) -> None:
    quick = Patience(0.03, 0, restarts.lines.append)
    with pytest.raises(ServerUnreachable), Client(restarts.url, patience=quick) as client:
        list(client.runs())
    assert len(restarts.lines) == 1


def test_a_server_that_restarts_is_asked_again(restarts: Restarts) -> None:
    with Client(restarts.url, patience=restarts.patience(0, 120)) as client:
        with scripted(restarts.port) as before:
            before.answer(200, RUN_LIST, Connection="close")
            assert list(client.runs()) == []
        assert list(client.runs()) == []
    assert restarts.lines == _restarted(restarts)


def test_a_proxy_whose_server_restarts_is_asked_again(restarts: Restarts) -> None:
    patient = Patience(0, 120, restarts.lines.append)
    with scripted(restarts.port) as server, Client(restarts.url, patience=patient) as client:
        for status in (200, 502, 503, 200):
            server.answer(status, RUN_LIST)
        assert list(client.runs()) == []
        assert list(client.runs()) == []
    assert restarts.lines == _restarted(restarts)


def _restarted(restarts: Restarts) -> list[str]:
    return [f"the server {restarts.url} does not answer; trying again for 120 s", "the server answers again"]


def test_what_may_have_reached_the_server_is_sent_once(restarts: Restarts) -> None:
    """An answer that is lost says nothing about the request."""
    with scripted(restarts.port) as server, Client(restarts.url, patience=restarts.patience(0, 120)) as client:
        server.answer(200, RUN_LIST)
        server.answer(503, b"")
        assert list(client.runs()) == []
        with pytest.raises(Problem):
            client.submit(ExperimentRequest())
        assert _methods(server) == ["GET", "POST"]


def _methods(server: Script) -> list[str]:
    return [each.method for each in server.asked]


def test_the_variable_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(patience.VARIABLE, "3.5")
    assert starting_s() == 3.5
    for wrong in ("soon", "-1", "nan"):
        monkeypatch.setenv(patience.VARIABLE, wrong)
        with pytest.raises(ConfigError, match=f"TASKLOOM_START_WAIT_S = .*{wrong}.* is not accepted: seconds"):
            starting_s()
