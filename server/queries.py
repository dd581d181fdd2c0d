"""What stands behind the ? of an address."""

from __future__ import annotations

from fastapi import Request
from fastapi.routing import APIRoute

from taskloom.server.errors import InvalidRequest


async def check_known(request: Request) -> None:
    """A filter with a slip of the pen in its name would let everything pass. Raises InvalidRequest."""
    route: APIRoute = request.scope["route"]
    known = [parameter.alias for parameter in route.dependant.query_params]
    accepted = f"no such parameter here; known: {', '.join(known) or 'none'}"
    refused = [
        {"pointer": f"#query/{name}", "field": name, "value": value, "accepted": accepted}
        for name, value in request.query_params.items()
        if name not in known
    ]
    if refused:
        raise InvalidRequest(refused)
