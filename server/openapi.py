"""The OpenAPI document: FastAPI's own, with short operation names and problems as they are sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from contract.problems import Problem
from server.errors import Forbidden, RateExceeded, Unauthenticated
from server.problems import MEDIA_TYPE, responses


def operation_name(route: APIRoute) -> str:
    """runs_show, experiments_submit, ..."""
    return f"{route.tags[0] if route.tags else 'server'}_{route.name}"


def _add_refusals(operation: dict[str, Any], scopes: frozenset[str]) -> None:
    """Who may call it, and how others are refused."""
    if not scopes:
        operation["security"] = []
        return
    operation["security"] = [{"key": []}]
    operation["description"] += f"\n\nTakes a key of scope {', '.join(sorted(scopes))}."
    for status, answer in responses(Unauthenticated, Forbidden, RateExceeded).items():
        known = operation["responses"].setdefault(str(status), answer)
        if known is not answer:
            known["content"][MEDIA_TYPE]["examples"] |= answer["content"][MEDIA_TYPE]["examples"]


def install(app: FastAPI, access: Mapping[str, frozenset[str]]) -> None:
    """Make app.openapi() give this document, built once. access: the scopes that may call each operation."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            made = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
            made["components"]["schemas"]["Problem"] = Problem.model_json_schema()
            made["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
            for operations in made["paths"].values():
                for operation in operations.values():
                    _add_refusals(operation, access[operation["operationId"]])
            app.openapi_schema = made
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]
