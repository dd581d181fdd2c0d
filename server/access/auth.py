"""Who may call what: one table, to which guard.py holds every route."""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Mapping
from typing import Annotated
from urllib.parse import urlsplit

from anyio import to_thread
from fastapi import Depends, Request
from fastapi.routing import APIRoute

from taskloom.server.access.keys import service as keys
from taskloom.server.access.keys.service import ANYBODY, Caller
from taskloom.server.context import Context
from taskloom.server.errors import Forbidden, RateExceeded, Unauthenticated

READERS = frozenset({"read", "submit", "admin"})
SUBMITTERS = frozenset({"submit", "admin"})
WORKERS = frozenset({"worker", "admin"})
ADMINS = frozenset({"admin"})
EVERYBODY: frozenset[str] = frozenset()  # no key is asked for

# Scopes of each route, by its name. A route that is not here is refused when the application is made.
ACCESS: dict[str, frozenset[str]] = {
    "server_health": EVERYBODY,
    "server_ready": EVERYBODY,
    "server_metrics": READERS,
    "server_index": READERS,
    "server_docs": READERS,
    "server_document": READERS,
    "server_problem_types": READERS,
    "server_problem_type": READERS,
    "experiments_submit": SUBMITTERS,
    "experiments_index": READERS,
    "experiments_show": READERS,
    "experiments_history": READERS,
    "experiments_cancel": SUBMITTERS,
    "experiments_retry": SUBMITTERS,
    "runs_index": READERS,
    "runs_show": READERS,
    "runs_samples": READERS,
    "runs_result": READERS,
    "runs_log": READERS,
    "runs_history": READERS,
    "samples_index": READERS,
    "runs_cancel": SUBMITTERS,
    "runs_retry": SUBMITTERS,
    "events_run": READERS,
    "events_experiment": READERS,
    "artifacts_put": WORKERS,
    "artifacts_index": READERS,
    "artifacts_show": READERS,
    "analysis_compare": READERS,
    "analysis_scaling": READERS,
    "analysis_sweep": READERS,
    "analysis_efficiency": READERS,
    "analysis_roofline": READERS,
    "analysis_forecast": READERS,
    "analysis_memory": READERS,
    "analysis_history": READERS,
    "analysis_alert_rows": READERS,
    "analysis_confirm": SUBMITTERS,
    "analysis_report": READERS,
    "analysis_calibration": READERS,
    "server_report": READERS,
    "queue_demand": READERS | WORKERS,
    "queue_pools": READERS | WORKERS,
    "queue_report": WORKERS,
    "workers_index": READERS,
    "workers_show": READERS,
    "workers_register": WORKERS,
    "workers_put": WORKERS,
    "workers_leave": WORKERS,
    "attempts_lease": WORKERS,
    "attempts_show": READERS | WORKERS,
    "attempts_heartbeat": WORKERS,
    "attempts_finish": WORKERS,
    "retention_prune": ADMINS,
    "keys_create": ADMINS,
    "keys_index": ADMINS,
    "keys_revoke": ADMINS,
}
# Read-only pages that hold nothing of anybody's: on loopback they need no key.
PAGES = frozenset({"server_index", "server_docs", "server_document", "server_problem_types", "server_problem_type"})


def check_declared(operations: Mapping[str, APIRoute]) -> None:
    """Raises LookupError for a route without declared scopes, and for scopes without a route."""
    odd = operations.keys() ^ ACCESS.keys()
    if odd:
        raise LookupError(f"declare in server/access/auth.py who may call, or remove there: {', '.join(sorted(odd))}")


def is_open(name: str, public: bool) -> bool:
    """Whether a route takes no key. public: whether other machines can reach the server."""
    return ACCESS[name] is EVERYBODY or (name in PAGES and not public)


async def authorise(request: Request, context: Context, name: str) -> Caller:
    """The caller, from the headers, if it may use this route. Raises Unauthenticated, Forbidden or RateExceeded."""
    if is_open(name, context.public):
        return ANYBODY
    allowed = ACCESS[name]
    local = not context.public and _is_from_here(request)
    identify = functools.partial(keys.identify, context.database, _token(request), open_without_keys=local)
    # What readers may not call has threads that they cannot take, from here on.
    caller = await (to_thread.run_sync(identify) if "read" in allowed else context.control.run(identify))
    if caller.scope not in allowed:
        raise Forbidden(
            f"this takes a key of scope {' or '.join(sorted(allowed))}, not {caller.scope}", scopes=sorted(allowed)
        )
    if caller.key_id is not None:
        wait_s = context.rates.take(caller.key_id)
        if wait_s > 0:
            refusal = RateExceeded(f"at most {context.settings.rate_per_s:g} requests a second with one key")
            refusal.headers["Retry-After"] = str(int(wait_s) + 1)
            raise refusal
    return caller


def _is_from_here(request: Request) -> bool:
    """Whether it is sent by no page of another site in a browser of this machine: that says so in Sec-Fetch-Site, or
    its site's name in Origin or, where it had the name resolved to us, in Host.
    """
    if request.headers.get("Sec-Fetch-Site") == "cross-site":
        return False
    said = [f"//{request.headers.get('Host', 'localhost')}", request.headers.get("Origin", "//localhost")]
    return all(map(_is_near, said))


def _is_near(url: str) -> bool:
    """Whether its host is this machine, or a name without a dot, which no site of the internet has."""
    try:
        host = urlsplit(url).hostname or "."
        return not {".", ":"} & set(host) or ipaddress.ip_address(host).is_loopback
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
    caller: Caller = request.state.caller  # guard.py let it in
    return caller


Who = Annotated[Caller, Depends(_caller)]
