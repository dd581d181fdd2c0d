"""Every JSON answer has an ETag, and unchanged answers are a 304."""

import pytest

from taskloom.server import unchanged
from tests.support.route_requests import OPERATIONS, request_of

LISTS = ["/runs", "/experiments", "/workers", "/queue/runs", "/analysis/alerts", "/analysis/history/series"]


def ask(api, path, etag=None):
    return api.http.get(f"/api/v1{path}", headers={} if etag is None else {"If-None-Match": etag})


@pytest.mark.parametrize("path", LISTS)
def test_a_list_that_did_not_change_is_not_sent_again(house, path):
    house.use(house.tokens["admin"])
    first = ask(house, path)
    assert (first.status_code, first.headers["cache-control"]) == (200, "no-cache")
    for known in (first.headers["etag"], f'W/"x", {first.headers["etag"]}'):
        again = ask(house, path, known)
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", first.headers["etag"])
    assert ask(house, path, '"another"').content == first.content


def test_a_list_that_changed_is_sent_again(api):
    api.submit()
    first = ask(api, "/runs")
    api.post("/runs/1/cancel")
    changed = ask(api, "/runs", first.headers["etag"])
    assert (changed.status_code, changed.json()["items"][0]["state"]) == (200, "cancelled")
    assert changed.headers["etag"] != first.headers["etag"]


def test_every_json_answer_to_a_reader_has_an_etag_and_says_so(house, monkeypatch):
    monkeypatch.setattr(unchanged, "INLINE_BYTES", 300)
    house.use(house.tokens["admin"])
    document = house.http.get("/openapi.json").json()["paths"]
    seen = 0
    for name, (declared, route) in OPERATIONS.items():
        if route.methods != {"GET"} or "read" not in route.access.scopes or declared not in document:
            continue
        answer = house.http.get(request_of(name)[1]) if "events" not in name else None
        if answer is None or answer.status_code != 200 or answer.headers["content-type"] != "application/json":
            continue
        assert "etag" in answer.headers, name
        described = document[declared]["get"]
        assert "304" in described["responses"], name
        assert [each["name"] for each in described["parameters"]].count("if-none-match") == 1, name
        seen += 1
    assert seen > 35


def test_problems_and_what_administrators_read_have_none(house):
    house.use(house.tokens["admin"])
    for path in ("/runs/99", "/keys"):
        answer = ask(house, path)
        assert ("etag" in answer.headers, answer.headers["cache-control"]) == (False, "no-store")
