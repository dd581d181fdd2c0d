"""The OpenAPI document: FastAPI's own, with short operation names and problems as they are sent."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from contract.problems import Problem


def operation_name(route: APIRoute) -> str:
    """runs_show, experiments_submit, ..."""
    return f"{route.tags[0] if route.tags else 'server'}_{route.name}"


def install(app: FastAPI) -> None:
    """Make the app answer /openapi.json with this document, built once."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            made = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
            made["components"]["schemas"]["Problem"] = Problem.model_json_schema()
            app.openapi_schema = made
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]
