"""Users that a trusted proxy names: what they may do, what is recorded of them, and whom the server believes."""

from __future__ import annotations

from typing import Any

import pytest

from taskloom.server.access.proxies import Proxies
from taskloom.server.errors import StartRefused
from taskloom.server.settings import Settings

USERS = {"proxy_user_header": "X-Forwarded-User", "proxy_addresses": "10.1.0.0/16, 127.0.0.1"}
ADA = {"X-Forwarded-User": "ada@example.org"}


@pytest.fixture
def behind(start_server: Any) -> Any:
    """A server behind a trusted proxy, with a key. Its requests have no key."""
    api = start_server(**USERS, max_queued=3, rate_per_s=1000)
    api.token = api.post("/keys", {"scope": "admin"}, 201)["token"]
    return api


def submitted(api: Any, headers: dict[str, str], runs: int = 1) -> Any:
    return api.http.post("/api/v1/experiments", json={"axes": {"seed": list(range(runs))}}, headers=headers)


@pytest.mark.both_databases
def test_a_users_name_is_who_did_it(behind):
    made = submitted(behind, ADA).json()
    assert made["submitter"] == "user:ada@example.org"
    whoami = behind.http.get("/api/v1/whoami", headers=ADA).json()
    shown = (whoami["actor"], whoami["scope"], whoami["name"], whoami["key_id"])
    assert shown == ("user:ada@example.org", "submit", "ada@example.org", None)
    behind.http.post("/api/v1/runs/1/cancel", headers=ADA)
    behind.use(behind.token)
    changes = behind.get("/runs/1/changes")["items"]
    assert {change["actor"] for change in changes} == {"user:ada@example.org"}
    assert len(behind.get("/experiments", submitter="user:ada@example.org")["items"]) == 1
    assert behind.get("/experiments", submitter="key:1")["items"] == []
    assert behind.get("/experiments", filter='submitter = "user:ada@example.org"')["items"][0]["id"] == made["id"]


def test_a_user_has_the_scope_of_the_settings(behind, start_server):
    assert behind.http.get("/api/v1/keys", headers=ADA).status_code == 403
    reads = start_server(**USERS, proxy_user_scope="read")
    assert reads.http.get("/api/v1/runs", headers=ADA).status_code == 200
    refused = submitted(reads, ADA)
    assert (refused.status_code, refused.json()["scopes"]) == (403, ["admin", "submit"])


def test_a_key_counts_before_a_user(behind):
    made = submitted(behind, {**ADA, "Authorization": f"Bearer {behind.token}"})
    assert made.json()["submitter"] == "key:1"
    assert submitted(behind, {**ADA, "Authorization": "Bearer nonsense"}).status_code == 401


def test_without_a_name_a_key_is_needed(behind):
    assert submitted(behind, {}).status_code == 401


@pytest.mark.parametrize(
    "settings", [{}, {**USERS, "proxy_addresses": "10.1.0.0/16"}, {**USERS, "proxy_user_header": "X-Remote-User"}]
)
def test_the_header_is_believed_only_from_a_named_address_and_under_its_name(start_server, settings):
    api = start_server(**settings)
    api.post("/keys", {"scope": "admin"}, 201)
    for more in ({}, {"X-Forwarded-For": "10.1.2.3"}):  # a client's claim about its own address
        assert submitted(api, {**ADA, **more}).status_code == 401


@pytest.mark.parametrize("name", ["", "two words", "größe".encode(), "x" * 101])
def test_a_bad_name_is_refused(behind, name):
    answer = submitted(behind, {"X-Forwarded-User": name})
    assert (answer.status_code, "must name one user" in answer.json()["detail"]) == (401, True)


def test_two_names_are_refused_since_the_client_may_have_sent_one(behind):
    headers = [("X-Forwarded-User", "ada"), ("X-Forwarded-User", "bob")]
    assert behind.http.get("/api/v1/whoami", headers=headers).status_code == 401


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Sec-Fetch-Site": "cross-site"}, 401),
        ({"Sec-Fetch-Site": "same-site"}, 401),
        ({"Origin": "https://elsewhere.example.org"}, 401),
        ({"Sec-Fetch-Site": "same-origin"}, 201),
        ({"Sec-Fetch-Site": "none"}, 201),
        ({"Origin": "https://taskloom.example.org", "Host": "taskloom.example.org"}, 201),
    ],
)
def test_pages_of_other_sites_change_nothing_with_a_users_session(behind, headers, status):
    assert submitted(behind, {**ADA, **headers}).status_code == status
    assert behind.http.get("/api/v1/runs", headers={**ADA, **headers}).status_code == 200


@pytest.mark.both_databases
def test_each_user_has_a_queue_and_a_rate_of_their_own(behind, start_server):
    bob = {"X-Forwarded-User": "bob"}
    assert [submitted(behind, who, 2).status_code for who in (ADA, ADA, bob)] == [201, 429, 201]
    slow = start_server(**USERS, rate_per_s=0.5)
    statuses = [slow.http.get("/api/v1/whoami", headers=who).status_code for who in (ADA, ADA, bob)]
    assert statuses == [200, 429, 200]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"proxy_user_header": "X-Forwarded-User"}, "set both"),
        ({"proxy_addresses": "127.0.0.1"}, "set both"),
        ({**USERS, "proxy_addresses": "proxy.example.org"}, "'proxy.example.org' is not accepted"),
        ({**USERS, "proxy_addresses": "10.0.0.5/8"}, "has host bits set"),
        ({"proxy_group_header": "X-Forwarded-Groups"}, "set TASKLOOM_PROXY_USER_HEADER too"),
    ],
)
def test_settings_that_would_believe_nobody_or_everybody_are_refused_at_the_start(settings, said):
    with pytest.raises(StartRefused, match=said):
        Proxies.of(Settings(**settings))


GROUPED = {**USERS, "proxy_group_header": "X-Forwarded-Groups"}


@pytest.mark.both_databases
def test_users_and_keys_of_a_group_share_its_queue(start_server):
    api = start_server(**GROUPED, max_queued=3)
    api.use(api.post("/keys", {"scope": "admin", "group": "vision"}, 201)["token"])
    api.submit()
    api.use(None)
    ada, bob = ({"X-Forwarded-User": user, "X-Forwarded-Groups": "vision , speech"} for user in ("ada", "bob"))
    assert submitted(api, ada).json()["group"] == "vision"
    assert submitted(api, bob).status_code == 201
    assert "group vision" in submitted(api, ada).json()["detail"]
    speech = {**ada, "X-Forwarded-Groups": "speech,vision"}
    assert api.http.get("/api/v1/whoami", headers=speech).json()["group"] == "speech"
    assert submitted(api, speech).status_code == 201
    for none in ({**ADA, "X-Forwarded-Groups": ""}, ADA):
        assert api.http.get("/api/v1/whoami", headers=none).json()["group"] is None


@pytest.mark.parametrize("settings", [USERS, {**GROUPED, "proxy_addresses": "10.1.0.0/16"}])
def test_a_group_is_believed_only_where_the_user_is_and_under_its_name(start_server, settings):
    api = start_server(**settings)
    token = api.post("/keys", {"scope": "admin"}, 201)["token"]
    headers = {**ADA, "X-Forwarded-Groups": "vision", "Authorization": f"Bearer {token}"}
    assert submitted(api, headers).json()["group"] is None
    del headers["Authorization"]
    whoami = api.http.get("/api/v1/whoami", headers=headers)
    assert whoami.status_code == 401 if "proxy_group_header" in settings else whoami.json()["group"] is None


@pytest.mark.parametrize("given", [["größe".encode()], ["x" * 101], ["vision", "speech"]])
def test_bad_groups_are_refused(start_server, given):
    api = start_server(**GROUPED)
    api.post("/keys", {"scope": "admin"}, 201)
    headers = [*ADA.items(), *(("X-Forwarded-Groups", group) for group in given)]
    answer = api.http.get("/api/v1/whoami", headers=headers)
    assert (answer.status_code, "X-Forwarded-Groups must" in answer.json()["detail"]) == (401, True)
