"""The OpenAPI document: FastAPI's own, with access rules and problem answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from taskloom.contract.events import ExperimentEvent, RunEvent
from taskloom.contract.problems import Problem
from taskloom.server.access.scopes import Access
from taskloom.server.descriptions import describe
from taskloom.server.errors import Forbidden, RateExceeded, Unauthenticated
from taskloom.server.examples import Examples
from taskloom.server.problems import MEDIA_TYPE, responses
from taskloom.server.routing import Route

TAGS = {
    "overview": "State of the whole server: totals, throughput, remaining work.",
    "experiments": "Experiments: submit, show, cancel, retry.",
    "runs": "One configuration and one repetition of an experiment, with its attempts, samples, result and log.",
    "filters": "Names that `filter` of lists and exports accepts.",
    "samples": "Every step of many runs.",
    "exports": "Flat tables of runs, steps, ops, variants and history.",
    "analysis": "Analyses of results: comparisons, scaling, causes, forecasts, history and reports.",
    "history": "Series of runs of one configuration on one machine: their points and their changes.",
    "thresholds": "References of series' step times, and how far from them a measured one may be.",
    "events": "Server-sent events.",
    "artifacts": "Files of attempts: traces, profiles.",
    "queue": "Queued runs, and the pools whose provisioners can start workers for them.",
    "workers": "The agents on nodes.",
    "attempts": "Operations of workers: leases, heartbeats, results.",
    "webhooks": "URLs that receive verdicts and alerts.",
    "keys": "API keys and their scopes.",
    "retention": "Deletion of old runs.",
    "server": "Health, metrics, reports as pages, problem types.",
}
UNROUTED = (Problem, RunEvent, ExperimentEvent)  # models that no route declares as its answer


def _add_refusals(operation: dict[str, Any], access: Access, public: bool) -> None:
    """Access of an operation and its error answers."""
    if access.is_open(public):
        operation["security"] = []
        return
    operation["security"] = [{"key": []}]
    operation["description"] += f"\n\nNeeds a key of scope {' or '.join(sorted(access.scopes))}."
    for status, answer in responses(Unauthenticated, Forbidden, RateExceeded).items():
        known = operation["responses"].setdefault(str(status), answer)
        if known is not answer:
            known["content"][MEDIA_TYPE]["examples"] |= answer["content"][MEDIA_TYPE]["examples"]


def _add_examples(document: dict[str, Any]) -> None:
    examples = Examples(document)
    for methods in document["paths"].values():
        for operation in methods.values():
            for status, answer in operation["responses"].items():
                media = answer.get("content", {}).get("application/json")
                if status < "300" and media and "$ref" in media["schema"]:
                    media["example"] = examples.of(media["schema"])


def install(app: FastAPI, operations: Mapping[str, tuple[str, Route]], public: bool, root_path: str) -> None:
    """Make app.openapi() return this document, built once."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            made = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
            _, named = models_json_schema(
                [(model, "serialization") for model in UNROUTED], ref_template="#/components/schemas/{model}"
            )
            made["components"]["schemas"] |= named["$defs"]
            if root_path:
                made["servers"] = [{"url": root_path}]
            made["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
            for methods in made["paths"].values():
                for operation in methods.values():
                    _, route = operations[operation["operationId"]]
                    _add_refusals(operation, route.access, public)
            made["tags"] = [{"name": name, "description": text} for name, text in TAGS.items()]
            describe(made)
            _add_examples(made)
            app.openapi_schema = made
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]
