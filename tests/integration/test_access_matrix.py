"""Every route answers every kind of caller as it declares, and as the OpenAPI document says."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from jsonschema_rs import Draft202012Validator

from taskloom.server import main
from taskloom.server.main import create_app
from taskloom.server.routing import Router
from taskloom.server.settings import Settings
from tests.support.present import present
from tests.support.route_requests import DOCUMENT, OPERATIONS, REQUESTS, request_of

CALLERS = ("none", "unknown", "revoked", "expired", "read", "submit", "worker", "other-worker", "admin")
NO_KEY = ("none", "unknown", "revoked", "expired")
WORKERS_OWN = {"workers_register", "workers_put", "workers_leave", "queue_report", "attempts_lease", "attempts_show",
               "attempts_heartbeat", "attempts_finish", "artifacts_put"}  # fmt: skip
REFUSED = ("forbidden", "not-your-worker", "not-your-pool")
READING = {name for name, (_, route) in OPERATIONS.items() if route.methods == {"GET"}}
PAGES = sorted(name for name, (_, route) in OPERATIONS.items() if route.access.without_key == "loopback")


def test_requests_are_of_routes_that_exist():
    assert set(REQUESTS) <= set(OPERATIONS)


def test_a_route_that_does_not_say_who_may_call_it_keeps_the_application_from_being_made(monkeypatch):
    careless = Router(tag="careless")
    with pytest.raises(TypeError, match="access"):
        careless.get("/open")  # type: ignore[call-arg]
    careless.api.get("/open")(lambda: "open to everybody")
    monkeypatch.setattr(main, "ROUTERS", (*main.ROUTERS, careless))
    with pytest.raises(LookupError, match="/api/v1/open"):
        create_app(Settings(database_url="sqlite:////never-opened.db"))


def expected(name, caller, public):
    """The status that a caller must get from a route, by the route's declaration."""
    access, allowed = OPERATIONS[name][1].access, request_of(name)[0]
    scopes = access.scopes
    if access.without_key == "everywhere" or (access.without_key == "loopback" and not public):
        return allowed
    if caller in NO_KEY:
        return 401
    scope = caller.removeprefix("other-")
    if scope not in scopes or (caller == "other-worker" and name in WORKERS_OWN):
        return 403
    return allowed


@functools.cache
def validator(reference: str) -> Any:
    return Draft202012Validator({"$ref": reference, "components": DOCUMENT["components"]})


def check_by_document(name, method, answer):
    """Check that the document has an answer's status, media type and schema. It has no pages."""
    described = DOCUMENT["paths"].get(OPERATIONS[name][0], {}).get(method.lower())
    if described is None:
        return
    media = described["responses"][str(answer.status_code)].get("content")
    if media is None:
        return
    reference = media[answer.headers["content-type"].partition(";")[0]].get("schema", {}).get("$ref")
    if reference is not None:
        wrong = [error.message for error in validator(reference).iter_errors(answer.json())]
        assert wrong == [], (name, answer.status_code, wrong)


def answers_to_callers(house, name):
    """The status that each kind of caller gets."""
    _, path, body = request_of(name)
    (method,) = present(OPERATIONS[name][1].methods)
    got = {}
    for caller in CALLERS:
        house.use(house.tokens["admin"])
        if name == "runs_retry":
            house.post("/runs/3/cancel")
        if name == "experiments_retry":
            house.post("/experiments/2/cancel")
        house.use(house.tokens[caller])
        answer = house.http.request(method, path, json=body)
        got[caller] = answer.status_code
        check_by_document(name, method, answer)
        if answer.status_code in (401, 403):
            kinds = ("unauthenticated",) if answer.status_code == 401 else REFUSED
            assert answer.json()["type"].removeprefix("/problems/") in kinds
            assert ("www-authenticate" in answer.headers) == (answer.status_code == 401)
    return got


@pytest.mark.parametrize("name", sorted(set(OPERATIONS) - READING))
def test_every_caller_gets_what_a_route_that_changes_something_declares(house, name):
    assert answers_to_callers(house, name) == {caller: expected(name, caller, public=False) for caller in CALLERS}


def test_every_caller_gets_what_the_reading_routes_declare(house):
    got = {name: answers_to_callers(house, name) for name in sorted(READING)}
    assert got == {name: {caller: expected(name, caller, public=False) for caller in CALLERS} for name in READING}


@pytest.mark.parametrize("name", PAGES)
def test_pages_take_a_key_where_others_can_reach_them(start_server, name):
    api = start_server(public=True)
    path = request_of(name)[1]
    assert api.http.get(path).status_code == expected(name, "none", public=True) == 401
