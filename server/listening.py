"""The server's address, whether other machines can reach it, and the message to systemd that it listens."""

from __future__ import annotations

import ipaddress
import logging
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpt2core.spec import files
from taskloom.server.errors import StartRefused

log = logging.getLogger("taskloom.server")


@dataclass(frozen=True)
class Address:
    """A resolved host and port."""

    family: int
    sockaddr: Any
    host: str
    port: int

    @property
    def public(self) -> bool:
        """Whether other machines can reach it."""
        return not ipaddress.ip_address(str(self.sockaddr[0]).partition("%")[0]).is_loopback


def resolve(host: str, port: int) -> Address:
    """Resolve the host name. Raises StartRefused."""
    try:
        family, _, _, _, sockaddr = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:  # UnicodeError: no name of a host
        raise StartRefused(f"{host} port {port}: {error}") from None
    return Address(family, sockaddr, host, port)


def bind(address: Address) -> socket.socket:
    """A socket bound to the address. Raises StartRefused."""
    # With an explicit protocol, asyncio turns off Nagle's algorithm, which would delay each answer by 40 ms.
    listener = socket.socket(address.family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address.sockaddr)
    except OSError as error:
        listener.close()
        raise StartRefused(f"port {address.port} on {address.host} cannot be used: {error.strerror}") from None
    return listener


def write_port(path: Path, port: int) -> None:
    """Write the port into a file, of which readers never see a part."""
    files.write_text(path, f"{port}\n")


def notify_systemd() -> None:
    """Report that the server listens, if it is a service of Type=notify. Source: sd_notify(3)."""
    address = os.environ.pop("NOTIFY_SOCKET", None)  # processes that are started later are not the service
    if not address:
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as service:
            service.sendto(b"READY=1", f"\0{address[1:]}" if address.startswith("@") else address)
    except OSError as error:
        log.warning("NOTIFY_SOCKET = %s: systemd does not learn that the server listens: %s", address, error)
