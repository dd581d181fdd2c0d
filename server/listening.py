"""The server's address, and whether other machines can reach it."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass
from typing import Any

from taskloom.server.errors import StartRefused


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
    if not 0 <= port < 1 << 16:
        raise StartRefused(f"port {port} is not a port number; use 1 to 65535, or 0 for a free one")
    try:
        family, _, _, _, sockaddr = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
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
