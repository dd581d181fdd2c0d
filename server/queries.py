"""Query parameters of a request: every one that is not accepted is named in one answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, Protocol

from fastapi import Request
from fastapi.dependencies.utils import request_params_to_args

from taskloom.contract.bodies import MOST_ERRORS
from taskloom.server.errors import InvalidRequest
from taskloom.server.problems import entries

Entry = dict[str, Any]


class Known(Protocol):
    """A route with its query parameters."""

    @property
    def query_params(self) -> Sequence[Any]: ...  # FastAPI's fields

    @property
    def query_names(self) -> Sequence[str]: ...

    @property
    def lists(self) -> Collection[str]: ...  # parameters that may be given several times


def entry(parameter: str, value: object, accepted: str) -> Entry:
    return {"pointer": f"#query/{parameter}", "field": parameter, "value": value, "accepted": accepted}


def refuse(request: Request, refused: Sequence[Entry]) -> None:
    """Refuse parameters in a dependency. The request ends after the last one, so that all refusals are in its answer;
    what the dependency returns is not used."""
    request.state.refused = [*getattr(request.state, "refused", ()), *refused]


async def check(request: Request) -> None:
    """The last dependency of a route. Refuses unknown parameters, too: a misspelled filter would select everything; and
    those given twice, of which FastAPI takes the last. Raises InvalidRequest: an error here ends FastAPI's work, so
    those that it found itself are added."""
    route: Known = request.scope["route"]
    known = route.query_names
    accepted = f"an existing parameter: {', '.join(known) or 'none'}"
    refuse(request, [entry(name, value, accepted) for name, value in request.query_params.items() if name not in known])
    given = Counter(name for name, _ in request.query_params.multi_items() if name in known and name not in route.lists)
    twice = [name for name, times in given.items() if times > 1]
    refuse(request, [entry(name, request.query_params.getlist(name), "one value") for name in twice])
    if request.state.refused:
        _, wrong = request_params_to_args(route.query_params, request.query_params)
        raise InvalidRequest([*request.state.refused, *entries(wrong, None)][:MOST_ERRORS])
