"""Authenticates the caller and checks the route's declared access."""

from __future__ import annotations

import functools
import ipaddress
from typing import Annotated
from urllib.parse import urlsplit

from anyio import to_thread
from fastapi import Depends, Request

from taskloom.server.access.keys import keyring
from taskloom.server.access.keys.keyring import ANYBODY, Caller
from taskloom.server.access.scopes import Access
from taskloom.server.context import Context
from taskloom.server.errors import Forbidden, RateExceeded, Unauthenticated


async def authorise(request: Request, context: Context, access: Access) -> Caller:
    """Identify the caller by the headers and check its access. Raises Unauthenticated, Forbidden or RateExceeded."""
    if access.is_open(context.public):
        return ANYBODY
    caller = context.proxies.caller(request)
    if caller is None and context.sign_on is not None:
        caller = context.sign_on.caller(request)
    if caller is None:
        local = not context.public and _is_from_here(request)
        identify = functools.partial(keyring.identify, context.database, _token(request), open_without_keys=local)
        # Operations that readers may not call run on their own threads from here on.
        caller = await (to_thread.run_sync(identify) if "read" in access.scopes else context.control.run(identify))
    if caller.scope not in access.scopes:
        scopes = sorted(access.scopes)
        raise Forbidden(f"this needs the scope {' or '.join(scopes)}, not {caller.scope}", scopes=scopes)
    if caller != ANYBODY:
        wait_s = context.rates.take(caller.actor)
        if wait_s > 0:
            refusal = RateExceeded(f"at most {context.settings.rate_per_s:g} requests per second of one caller")
            refusal.headers["Retry-After"] = str(int(wait_s) + 1)
            raise refusal
    return caller


def _is_from_here(request: Request) -> bool:
    """Whether the request has no sign of another machine behind a proxy, which shows in X-Forwarded-For, and none of
    another site's page in a local browser. Such a page shows in Sec-Fetch-Site, in Origin or, with DNS rebinding, in
    Host.
    """
    if request.headers.get("Sec-Fetch-Site") == "cross-site" or "Forwarded" in request.headers:
        return False
    addresses = ",".join(request.headers.getlist("X-Forwarded-For"))
    if addresses and not all(_is_loopback(address.strip()) for address in addresses.split(",")):
        return False
    said = [f"//{request.headers.get('Host', 'localhost')}", request.headers.get("Origin", "//localhost")]
    return all(map(_is_near, said))


def _is_near(url: str) -> bool:
    """Whether the host is a loopback address or a name without a dot, which no site on the internet has."""
    try:
        host = urlsplit(url).hostname or "."
    except ValueError:
        return False
    return not {".", ":"} & set(host) or _is_loopback(host)


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _token(request: Request) -> str | None:
    header = request.headers.get("Authorization")
    if header is None:
        return None
    scheme, _, token = header.partition(" ")
    if scheme.lower() != "bearer":
        raise Unauthenticated("keys are sent as Authorization: Bearer KEY")
    return token.strip()


def _caller(request: Request) -> Caller:
    caller: Caller = request.state.caller  # set by guard.py
    return caller


Who = Annotated[Caller, Depends(_caller)]
