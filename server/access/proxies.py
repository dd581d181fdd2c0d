"""Users that a trusted proxy has authenticated, and names in a header, with their groups. Off by default."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from fastapi import Request

from taskloom.server.access.keys.keyring import Caller
from taskloom.server.errors import StartRefused, Unauthenticated
from taskloom.server.settings import Settings

NAME = re.compile(r"[!-~]{1,100}")
GROUP = re.compile(r"[ -~]{1,100}")
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True)
class Proxies:
    """The headers that name a user and its group, the addresses from which they are believed, and the scope of such
    users."""

    header: str
    group_header: str
    networks: tuple[Network, ...]
    scope: str

    @classmethod
    def of(cls, settings: Settings) -> Proxies:
        """The proxies of the settings. Raises StartRefused."""
        networks: list[Network] = []
        for text in filter(None, map(str.strip, settings.proxy_addresses.split(","))):
            try:
                networks.append(ipaddress.ip_network(text))
            except ValueError as error:
                accepted = f"addresses and networks such as 10.0.0.0/24 ({error})"
                raise StartRefused(f"TASKLOOM_PROXY_ADDRESSES: {text!r} is not accepted: {accepted}") from None
        if bool(settings.proxy_user_header) != bool(networks):
            raise StartRefused(
                f"TASKLOOM_PROXY_USER_HEADER = {settings.proxy_user_header!r} and TASKLOOM_PROXY_ADDRESSES = "
                f"{settings.proxy_addresses!r}: a header is believed only from the addresses of proxies, so set both"
            )
        if settings.proxy_group_header and not networks:
            raise StartRefused(
                f"TASKLOOM_PROXY_GROUP_HEADER = {settings.proxy_group_header!r}: groups are those of users, so set "
                "TASKLOOM_PROXY_USER_HEADER too"
            )
        return cls(settings.proxy_user_header, settings.proxy_group_header, tuple(networks), settings.proxy_user_scope)

    def caller(self, request: Request) -> Caller | None:
        """The user that a trusted proxy names; None without one, and for a request with a key. Raises Unauthenticated.
        """
        if not self.networks or "Authorization" in request.headers or not self._is_trusted(request):
            return None
        users = request.headers.getlist(self.header)
        if not users:
            return None
        if len(users) > 1 or NAME.fullmatch(users[0]) is None:
            raise Unauthenticated(f"{self.header} must name one user, in 1 to 100 printable ASCII characters")
        if request.method not in ("GET", "HEAD") and not _is_same_site(request):
            raise Unauthenticated("a request of another site's page needs a key")
        return Caller(None, self.scope, users[0], self._group(request))

    def _group(self, request: Request) -> str | None:
        """The first group that a proxy names. Raises Unauthenticated."""
        given = request.headers.getlist(self.group_header) if self.group_header else []
        if len(given) > 1:
            raise Unauthenticated(f"{self.group_header} must be sent once, with groups separated by commas")
        group = "".join(given).partition(",")[0].strip()
        if group and GROUP.fullmatch(group) is None:
            raise Unauthenticated(f"{self.group_header} must name groups in 1 to 100 printable ASCII characters")
        return group or None

    def _is_trusted(self, request: Request) -> bool:
        """Whether the connection comes from a proxy."""
        if request.client is None:
            return False
        address = ipaddress.ip_address(request.client.host)
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in network for network in self.networks)


def _is_same_site(request: Request) -> bool:
    """Whether a browser says that its page is this server's, or the client is no browser. The proxy's session goes with
    every request of a browser, also with those of other sites' pages."""
    site, origin = request.headers.get("Sec-Fetch-Site"), request.headers.get("Origin")
    if site is not None:
        return site in ("same-origin", "none")
    return origin is None or urlsplit(origin).netloc == request.headers.get("Host")
