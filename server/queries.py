"""Query parameters of a request."""

from __future__ import annotations

from typing import Protocol

from fastapi import Request

from taskloom.server.errors import InvalidRequest


class Known(Protocol):
    """A route with the names of its query parameters."""

    query_names: list[str]


async def check_known(request: Request) -> None:
    """Reject unknown parameters: a misspelled filter would select everything. Raises InvalidRequest."""
    route: Known = request.scope["route"]
    known = route.query_names
    accepted = f"an existing parameter: {', '.join(known) or 'none'}"
    refused = [
        {"pointer": f"#query/{name}", "field": name, "value": value, "accepted": accepted}
        for name, value in request.query_params.items()
        if name not in known
    ]
    if refused:
        raise InvalidRequest(refused)
