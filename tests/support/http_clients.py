"""Requests of the three kinds of clients: the client of users, the worker and the provisioner."""

from __future__ import annotations

from typing import Any

from taskloom import Client
from taskloom.contract.retry import Unreachable
from taskloom.errors import ServerUnreachable
from taskloom.provisioner.server import Server
from taskloom.worker.client import ServerClient

ANSWERS: dict[str, Any] = {
    "client": {"items": [], "next_cursor": None}, "worker": b"", "provisioner": {"needs": [], "workers": []},
}  # fmt: skip
FAILURES = (ServerUnreachable, Unreachable)


def ask(kind: str, url: str) -> object:
    """Any request of a kind of client."""
    if kind == "client":
        with Client(url) as client:
            return list(client.runs())
    if kind == "worker":
        worker = ServerClient(url, None)
        try:
            worker.leave("w", "b")
            return None
        finally:
            worker.close()
    server = Server(url, None)
    try:
        return server.demand()
    finally:
        server.close()
