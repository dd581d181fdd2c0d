"""One description per operation: its route declares access, parameters and errors.

Problems of bodies, pages and cached answers follow from a route's parameters; the summary is the first sentence of its
docstring.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar, cast, get_args, get_origin

from fastapi import APIRouter, Depends, FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.dependencies.utils import get_parameterless_sub_dependant
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute, iter_route_contexts

from taskloom.server import queries
from taskloom.server.access import guard
from taskloom.server.access.guard import BodyLimit
from taskloom.server.access.scopes import Access
from taskloom.server.errors import BadCursor, BodyTooLarge, InvalidRequest, MalformedBody, PageTooLarge, ServerError
from taskloom.server.problems import responses as problems
from taskloom.server.unchanged import NOT_MODIFIED, PARAMETER, validated

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])
Errors = Sequence[type[ServerError]]


class Route(APIRoute):
    """An operation. access/guard.py authorises the caller before any of it runs."""

    def __init__(
        self,
        path: str,
        endpoint: Callable[..., Any],
        *,
        access: Access,
        errors: Errors,
        body_limit: BodyLimit,
        streams_body: bool,
        routine: bool,
        any_query: bool,
        **options: Any,
    ) -> None:
        self.access, self.body_limit, self.streams_body, self.routine = access, body_limit, streams_body, routine
        options["operation_id"] = f"{options['tags'][0]}_{endpoint.__name__}"
        options["summary"] = first_sentence(endpoint.__doc__ or "")
        super().__init__(path, endpoint, **options)
        self.query_params = [parameter for each in _flat(self.dependant) for parameter in each.query_params]
        self.query_names = [parameter.alias for parameter in self.query_params]
        self.lists = {each.alias for each in self.query_params if _is_list(each.field_info.annotation)}
        self.any_query = any_query
        if not any_query:  # after all others
            last = get_parameterless_sub_dependant(depends=Depends(queries.check), path=self.path_format)
            self.dependant.dependencies.append(last)
        described = problems(*errors, *self._implied_errors())
        if self.validates or self._names_answers:
            described = NOT_MODIFIED | described
        if self.validates:
            self.openapi_extra = {"parameters": [PARAMETER]}
        self.responses = described | self.responses

    def _implied_errors(self) -> Iterable[type[ServerError]]:
        if self.dependant.path_params or not self.any_query:
            yield InvalidRequest
        if self.body_field:
            yield from (MalformedBody, BodyTooLarge)
        if "cursor" in self.query_names:
            yield from (BadCursor, PageTooLarge)

    @property
    def _names_answers(self) -> bool:
        """Whether the route handles If-None-Match itself."""
        every = (parameter for each in _flat(self.dependant) for parameter in each.header_params)
        return any(parameter.alias == "if-none-match" for parameter in every)

    @property
    def validates(self) -> bool:
        """Whether a JSON answer has an ETag, so that the client gets a 304 if it already has the answer."""
        kind: Any = getattr(self.response_class, "value", self.response_class)
        is_read = self.methods == {"GET"} and "read" in self.access.scopes
        return is_read and issubclass(kind, JSONResponse) and not self._names_answers

    @property
    def operation_name(self) -> str:
        """runs_show, experiments_submit, ..."""
        return self.unique_id

    def get_route_handler(self) -> guard.Handle:
        handle = super().get_route_handler()
        return guard.guarded(self, validated(handle) if self.validates else handle)


def _is_list(annotation: object) -> bool:
    """Whether a parameter of this type may be given several times."""
    return get_origin(annotation) is list or any(map(_is_list, get_args(annotation)))


def _flat(dependant: Dependant) -> Iterator[Dependant]:
    yield dependant
    for each in dependant.dependencies:
        yield from _flat(each)


class Router:
    """Operations of one tag. `api` holds their complete routes, ready for an application."""

    def __init__(self, prefix: str = "", *, tag: str, below: str = "/api/v1", any_query: bool = False) -> None:
        """any_query: unknown query parameters are ignored instead of rejected."""
        self.api, self._any_query = APIRouter(prefix=below + prefix, tags=[tag]), any_query

    def operation(
        self,
        method: str,
        path: str,
        access: Access,
        *,
        errors: Errors = (),
        body_limit: BodyLimit = lambda settings: settings.max_body_bytes,
        streams_body: bool = False,
        routine: bool = False,
        **options: Any,
    ) -> Callable[[Endpoint], Endpoint]:
        """Declare an operation.

        errors: its own problems; body_limit: bytes of a body, from the settings; streams_body: it reads its body in
        pieces; routine: frequent, so logged only if it fails; options: FastAPI's.
        """
        described = functools.partial(
            Route, access=access, errors=errors, body_limit=body_limit, streams_body=streams_body, routine=routine,
            any_query=self._any_query,
        )  # fmt: skip

        def add(endpoint: Endpoint) -> Endpoint:
            kind = cast("type[APIRoute]", described)
            self.api.add_api_route(path, endpoint, methods=[method], route_class_override=kind, **options)
            return endpoint

        return add

    def get(self, path: str, access: Access, **described: Any) -> Callable[[Endpoint], Endpoint]:
        return self.operation("GET", path, access, **described)

    def post(self, path: str, access: Access, **described: Any) -> Callable[[Endpoint], Endpoint]:
        return self.operation("POST", path, access, **described)

    def put(self, path: str, access: Access, **described: Any) -> Callable[[Endpoint], Endpoint]:
        return self.operation("PUT", path, access, **described)

    def patch(self, path: str, access: Access, **described: Any) -> Callable[[Endpoint], Endpoint]:
        return self.operation("PATCH", path, access, **described)

    def delete(self, path: str, access: Access, **described: Any) -> Callable[[Endpoint], Endpoint]:
        return self.operation("DELETE", path, access, **described)


def first_sentence(text: str) -> str:
    """Its first sentence in one line, without the full stop."""
    return re.split(r"\.(?=\s|$)", " ".join(text.split()), maxsplit=1)[0]


def operations(app: FastAPI) -> dict[str, tuple[str, Route]]:
    """Path and route of every operation by name. Raises LookupError for a route that does not declare its access.
    """
    found = {}
    for context in iter_route_contexts(app.routes):
        route = context.original_route
        if not isinstance(route, Route):
            raise LookupError(f"declare {context.path} with server/routing.py, which requires its access")
        found[route.operation_name] = (str(context.path), route)
    return found
