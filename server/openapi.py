"""The OpenAPI document: FastAPI's own, with short operation names and problems as they are sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic.json_schema import models_json_schema

from taskloom.contract.events import ExperimentEvent, RunEvent
from taskloom.contract.problems import Problem
from taskloom.server.errors import Forbidden, RateExceeded, Unauthenticated
from taskloom.server.problems import MEDIA_TYPE, responses

UNROUTED = (Problem, RunEvent, ExperimentEvent)  # what no route gives as its answer's model


def operation_name(route: APIRoute) -> str:
    """runs_show, experiments_submit, ..."""
    return f"{route.tags[0] if route.tags else 'server'}_{route.name}"


def _add_refusals(operation: dict[str, Any], scopes: frozenset[str], open_to_all: bool) -> None:
    """Who may call it, and how others are refused."""
    if open_to_all:
        operation["security"] = []
        return
    operation["security"] = [{"key": []}]
    operation["description"] += f"\n\nTakes a key of scope {', '.join(sorted(scopes))}."
    for status, answer in responses(Unauthenticated, Forbidden, RateExceeded).items():
        known = operation["responses"].setdefault(str(status), answer)
        if known is not answer:
            known["content"][MEDIA_TYPE]["examples"] |= answer["content"][MEDIA_TYPE]["examples"]


def install(app: FastAPI, access: Mapping[str, frozenset[str]], open_to_all: Callable[[str], bool]) -> None:
    """Make app.openapi() give this document, built once.

    access: the scopes that may call each operation; open_to_all: whether an operation takes no key.
    """

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            made = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
            _, named = models_json_schema(
                [(model, "serialization") for model in UNROUTED], ref_template="#/components/schemas/{model}"
            )
            made["components"]["schemas"] |= named["$defs"]
            made["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
            for operations in made["paths"].values():
                for operation in operations.values():
                    name = operation["operationId"]
                    _add_refusals(operation, access[name], open_to_all(name))
            app.openapi_schema = made
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]
