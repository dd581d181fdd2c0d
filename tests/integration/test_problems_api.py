from typing import Any

import httpx
import pytest
from sqlalchemy import text

from gpt2core.spec.version import version
from taskloom.server.errors import PROBLEM_TYPES


@pytest.mark.parametrize(
    ("method", "path", "status", "kind"),
    [
        ("GET", "/nothing", 404, "not-found"),
        ("GET", "/api/v1/nothing", 404, "not-found"),
        ("GET", "/api/v1/runs/", 404, "not-found"),
        ("DELETE", "/api/v1/runs", 405, "method-not-allowed"),
        ("PATCH", "/healthz", 405, "method-not-allowed"),
        ("GET", "/problems/nothing", 404, "not-found"),
    ],
)
def test_addresses_that_do_not_exist(empty_api, method, path, status, kind):
    answer = empty_api.http.request(method, path)
    problem = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    assert (answer.status_code, problem["status"], problem["type"]) == (status, status, f"/problems/{kind}")
    assert problem["instance"] == path
    assert ("allow" in answer.headers) == (status == 405)


@pytest.mark.parametrize("path", ["/healthz", "/api/v1/runs", "/api/v1/runs/1"])
def test_head_is_answered_as_get_is_but_without_a_body(empty_api, path):
    got, headed = empty_api.http.get(path), empty_api.http.head(path)
    assert (headed.status_code, headed.content) == (got.status_code, b"")
    assert headed.headers["content-length"] == str(len(got.content))


@pytest.mark.parametrize(
    ("path", "methods"),
    [("/healthz", "GET, HEAD"), ("/api/v1/experiments", "GET, HEAD, POST"), ("/api/v1/runs/1/cancel", "POST"),
     ("/api/v1/workers/w1", "DELETE, GET, HEAD, PUT")],
)  # fmt: skip
def test_a_refused_method_hears_of_those_that_are_taken(empty_api, path, methods):
    answer = empty_api.http.patch(path)
    assert (answer.status_code, answer.headers["allow"]) == (405, methods)


@pytest.mark.parametrize(
    ("content", "media", "status", "kind"),
    [
        (b"{", "application/json", 400, "malformed-body"),
        (b"", "application/json", 422, "invalid-request"),
        (b"{}", "text/plain", 415, "unknown-media-type"),
        (b"{}", "application/x-www-form-urlencoded", 415, "unknown-media-type"),
        (b"[]", "application/json", 422, "invalid-request"),
        (b"null", "application/json", 422, "invalid-request"),
        (b"\xff\xfe", "application/json", 400, "malformed-body"),
        (b'{"name": "\\ud800"}', "application/json", 422, "invalid-request"),
        (b'{"axes": {"threads": ["\\ud800"]}}', "application/json", 422, "invalid-request"),
        (b'{"axes": {"threads": [NaN]}}', "application/json", 422, "invalid-request"),
        (b'{"base": {"lr": Infinity}}', "application/json", 422, "invalid-request"),
        (b'{"axes": {"threads": [1' + b"0" * 400 + b"]}}", "application/json", 422, "invalid-request"),
        (b'{"axes": ' + b"[" * 100_000, "application/json", 422, "body-too-complex"),
        (b'{"axes": {"lr": ' + b"[" * 300 + b"]" * 300 + b"}}", "application/json", 422, "body-too-complex"),
        (b'{"exclude": [{"lr": ' + b"[" * 300 + b"]" * 300 + b"}]}", "application/json", 422, "body-too-complex"),
        (b'{"axes": {"lr": [' + b"9" * 4000 + b"]}}", "application/json", 422, "invalid-request"),
        (b'{"priority": ' + b"9" * 5000 + b"}", "application/json", 422, "invalid-request"),
        (b'{"axes": {"lr": [1e400]}}', "application/json", 422, "invalid-request"),
        (b'{"axes": {"op_threads": [{}]}}', "application/json", 422, "invalid-request"),
        (b'{"base": {"op_threads": {}}}', "application/json", 422, "invalid-request"),
        (b'{"seed": 99999999999999999999999}', "application/json", 422, "invalid-request"),
        (b'{"priority": 101}', "application/json", 422, "invalid-request"),
    ],
)
def test_bodies_that_cannot_be_used(empty_api, content, media, status, kind):
    answer = empty_api.http.post("/api/v1/experiments", content=content, headers={"Content-Type": media})
    assert (answer.status_code, answer.json()["type"]) == (status, f"/problems/{kind}"), answer.text
    assert empty_api.sql("SELECT count(*) FROM experiment") == [(0,)]


WRONG: dict[str, Any] = {
    "zip": [0] * 500_000,
    "exclude": [0] * 500_000,
    "axes": {"threads": ["x"] * 200_000, **{str(i): [] for i in range(4999)}},
    "space": {str(i): 0 for i in range(5000)},
}


def test_a_refusal_is_short_however_much_is_wrong(empty_api):
    """Without a limit, the answer would have an object of some hundred bytes for each error."""
    for part, value in WRONG.items():
        errors = empty_api.submit(422, **{part: value})["errors"]
        assert (len(errors), len({error["pointer"] for error in errors})) == (100, 100)
        assert all(error["pointer"].startswith(f"/{part}/") for error in errors)
    assert len(empty_api.post("/experiments", {str(i): 0 for i in range(5000)}, 422)["errors"]) == 100
    both = {"axes": {"threads": ["x"] * 100_000}, **{str(i): 0 for i in range(4999)}}
    assert len(empty_api.post("/experiments", both, 422)["errors"]) == 100
    too_many = {"older_than_s": 1, "states": ["x"] * 200_000}
    assert [error["pointer"] for error in empty_api.post("/prune", too_many, 422)["errors"]] == ["/states"]
    problem = empty_api.post("/experiments", {str(i): 0 for i in range(5001)}, 422)
    assert (problem["type"], problem["max_members"]) == ("/problems/body-too-complex", 5000)


@pytest.mark.parametrize(
    ("content", "errors"),
    [
        (b'{"axes": {"lr": [1e400, 1, NaN]}, "seed": -Infinity}',
         [("/axes/lr/0", "lr", "inf"), ("/axes/lr/2", "lr", "nan"), ("/seed", "seed", "-inf")]),
        (b'{"name": "\\ud800", "tags": ["a", "\\udfff"]}',
         [("/name", "name", "'\\ud800'"), ("/tags/1", "tags", "'\\udfff'")]),
    ],
)  # fmt: skip
def test_every_number_and_text_that_cannot_be_stored_is_named(empty_api, content, errors):
    answer = empty_api.http.post("/api/v1/experiments", content=content, headers={"Content-Type": "application/json"})
    found = [(each["pointer"], each["field"], each["value"]) for each in answer.json()["errors"]]
    assert (answer.status_code, found) == (422, errors)


def test_every_wrong_query_parameter_of_a_kind_is_named(empty_api):
    query = "since=a&until=b&filter=threads&filter=nothing+%3D+1"
    found = {}
    for part in (query, "filter=threads&filter=nothing+%3D+1", "label=a&label=b=1&label=c", "nope=1&other=2"):
        errors = empty_api.http.get(f"/api/v1/experiments?{part}").json()["errors"]
        found[part] = [(error["field"], error["value"]) for error in errors]
    assert list(found.values()) == [
        [("filter", "threads"), ("filter", "nothing = 1"), ("since", "a"), ("until", "b")],
        [("filter", "threads"), ("filter", "nothing = 1")],
        [("label", "a"), ("label", "c")],
        [("nope", "1"), ("other", "2")],
    ]


@pytest.mark.parametrize("labels", [{str(i): "" for i in range(65)}, {"a": "x" * 201}, {"x" * 201: ""}])
def test_labels_are_those_that_a_worker_may_have(empty_api, labels):
    """Labels are limited in number, because each is a row that every claim reads."""
    assert empty_api.submit(422, requires={"labels": labels})["errors"]


def test_a_body_is_limited_whether_or_not_it_says_its_length(start_server):
    api = start_server(max_body_bytes=1000, max_result_bytes=5000)
    big = b'{"name": "' + b"x" * 2000 + b'"}'
    for content in (big, iter([big[:1500], big[1500:]])):
        answer = api.http.post("/api/v1/experiments", content=content, headers={"Content-Type": "application/json"})
        assert (answer.status_code, answer.json()["type"]) == (413, "/problems/body-too-large")
        assert answer.json()["max_bytes"] == 1000
    result = api.http.put("/api/v1/attempts/1/result", content=big, headers={"Content-Type": "application/json"})
    assert result.status_code == 422
    assert api.http.put("/api/v1/attempts/1/result", content=b"x" * 5001).status_code == 413


def test_what_nobody_expected_has_an_id_and_its_traceback_in_the_log_only(api, caplog):
    api.submit()
    api.sql("UPDATE run SET spec = '[]'")
    with caplog.at_level("ERROR", "taskloom.server"):
        problem = api.get("/runs/1", 500)
    assert problem["type"] == "/problems/internal-error"
    assert "Traceback" not in str(problem)
    record = next(r for r in caplog.records if problem["error_id"] in r.getMessage())
    assert record.exc_info is not None


def test_every_problem_type_can_be_read_up(empty_api):
    listed = {entry["type"] for entry in empty_api.http.get("/problems").json()["items"]}
    assert listed == {f"/problems/{slug}" for slug in PROBLEM_TYPES}
    for kind in listed:
        assert empty_api.http.get(kind).json()["description"]


def test_health_and_readiness(api):
    assert api.http.get("/healthz").json() == {"status": "ok", "version": version()}
    assert api.http.get("/readyz").json() == {"status": "ready"}
    with api.context.database.engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = 'other'"))
    answer = api.http.get("/readyz")
    assert (answer.status_code, answer.json()["type"]) == (503, "/problems/database-unavailable")


def test_the_reference_loads_nothing_from_elsewhere(empty_api):
    page = empty_api.http.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "http://" not in page.text
    assert "https://" not in page.text
    assert "<script" not in page.text


def test_the_reference_names_every_address(empty_api):
    page = empty_api.http.get("/docs").text
    for path in empty_api.http.get("/openapi.json").json()["paths"]:
        assert f"<code>{path}</code>" in page


def test_a_client_that_goes_away_while_it_waits_takes_no_run(api):
    node = api.worker()
    body = {"worker_id": "w1", "boot_id": "boot-1", "wait_s": 20}
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{api.http.base_url}/api/v1/leases", json=body, timeout=0.3)
    api.submit()
    lease = node.claim()
    assert (lease["attempt_no"], api.sql("SELECT count(*) FROM attempt")) == (1, [(1,)])
