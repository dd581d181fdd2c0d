import hashlib
import logging

import pytest

pytestmark = pytest.mark.both_databases


@pytest.fixture
def admin(api):
    """The first key's token; it is in use."""
    token = api.post("/keys", {"scope": "admin", "name": "first"}, 201)["token"]
    api.use(token)
    return token


def key(api, scope, **more):
    return api.post("/keys", {"scope": scope, **more}, 201)


def test_without_any_key_a_server_on_loopback_is_open_and_with_one_it_is_not(api):
    api.use("not a key")
    assert api.get("/runs")["items"] == []
    token = key(api, "admin")["token"]
    assert api.get("/runs", 401)["type"] == "/problems/unauthenticated"
    api.use(None)
    assert api.get("/runs", 401)["type"] == "/problems/unauthenticated"
    assert api.http.get("/healthz").status_code == api.http.get("/docs").status_code == 200
    api.use(token)
    assert api.get("/runs")["items"] == []


@pytest.mark.on_sqlite
@pytest.mark.parametrize(
    "sent",
    [
        {"Host": "evil.example"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},  # images, forms and links send no Origin
        {"Host": "localhost", "X-Forwarded-For": "203.0.113.5"},
        {"Host": "localhost", "X-Forwarded-For": "127.0.0.1, 203.0.113.5"},  # the client sent the first one
        {"Host": "localhost", "X-Forwarded-For": "localhost"},
        {"Host": "localhost", "Forwarded": "for=203.0.113.5"},
    ],
)
def test_other_sites_and_machines_behind_a_proxy_get_nothing_of_an_open_server(api, sent):
    path = f"/api/v1/experiments/{api.submit()['id']}"
    ours = {"Host": "localhost:8321", "Origin": "http://[::1]:8321"}
    assert api.http.get(path, headers=ours).status_code == 200
    assert api.http.get(path, headers={"Host": "taskloom"}).status_code == 200
    assert api.http.get(path, headers={"Sec-Fetch-Site": "same-origin"}).status_code == 200
    assert api.http.get(path, headers={"X-Forwarded-For": "127.0.0.1, ::1"}).status_code == 200
    for answer in (api.http.get(path, headers=sent), api.http.post(f"{path}/cancel", headers=sent)):
        assert (answer.status_code, answer.json()["type"]) == (401, "/problems/unauthenticated")
    assert api.get("/runs/1")["state"] == "queued"


@pytest.mark.usefixtures("admin")
def test_it_stays_closed_when_the_last_key_is_revoked(api):
    assert api.post("/keys/1/revoke")["revoked_at"] is not None
    assert "was revoked" in api.get("/keys", 401)["detail"]
    api.use(None)
    api.get("/runs", 401)


@pytest.mark.parametrize("scope", ["read", "submit", "worker"])
def test_the_first_key_is_one_that_can_make_others(empty_api, scope):
    problem = empty_api.post("/keys", {"scope": scope}, 422)
    assert problem["errors"][0]["pointer"] == "/scope"
    assert empty_api.sql("SELECT count(*) FROM api_key") == [(0,)]


@pytest.mark.usefixtures("admin")
def test_a_token_is_shown_once_and_kept_as_its_hash(api):
    made = key(api, "read", name="dashboard")
    secret = made["token"].rpartition("_")[2]
    assert len(bytes.fromhex(secret)) == 32
    listed = api.get("/keys")["items"]
    assert [item["name"] for item in listed] == ["first", "dashboard"]
    assert secret not in str(listed)
    assert api.sql("SELECT secret_sha256 FROM api_key WHERE id = 2") == [(hashlib.sha256(secret.encode()).hexdigest(),)]
    assert secret not in str(api.sql("SELECT * FROM api_key"))
    assert key(api, "read")["token"].rpartition("_")[2] != secret


@pytest.mark.usefixtures("admin")
def test_a_token_that_is_not_quite_one_is_refused(api):
    for change in ("tlk_1_", "tlk_2_" + "0" * 64, "x", "tlk_1_" + "0" * 64):
        api.use(change)
        assert api.get("/runs", 401)["type"] == "/problems/unauthenticated", change


def test_only_bearer_tokens_are_keys(api, admin):
    api.http.headers["Authorization"] = f"Basic {admin}"
    assert "Bearer" in api.get("/runs", 401)["detail"]


@pytest.mark.usefixtures("admin")
def test_a_key_expires_by_the_databases_clock(api):
    made = key(api, "read", expires_in_s=3600)
    api.use(made["token"])
    api.get("/runs")
    api.sql("UPDATE api_key SET expires_at = expires_at - 3601 WHERE id = 2")
    assert "has expired" in api.get("/runs", 401)["detail"]


@pytest.mark.usefixtures("admin")
def test_when_a_key_was_last_used_is_noted_now_and_then(api):
    key(api, "read")
    first, second = api.get("/keys")["items"]
    assert (first["last_used_at"] is None, second["last_used_at"]) == (False, None)
    assert api.get("/keys")["items"][0]["last_used_at"] == first["last_used_at"]
    api.sql("UPDATE api_key SET last_used_at = last_used_at - 61")
    assert api.get("/keys")["items"][0]["last_used_at"] > first["last_used_at"]


@pytest.mark.usefixtures("admin")
@pytest.mark.on_sqlite
def test_bad_keys_name_the_field(api):
    for body, field in (
        ({"scope": "root"}, "scope"), ({}, "scope"), ({"scope": "read", "expires_in_s": 0}, "expires_in_s"),
        ({"scope": "read", "name": "a\nb"}, "name"), ({"scope": "read", "token": "mine"}, "token"),
    ):  # fmt: skip
        assert api.post("/keys", body, 422)["errors"][0]["field"] == field


@pytest.mark.usefixtures("admin")
def test_keys_are_paged_and_unknown_ones_not_found(api):
    key(api, "read")
    page = api.get("/keys", limit=1)
    assert [item["id"] for item in api.get("/keys", limit=1, cursor=page["next_cursor"])["items"]] == [2]
    assert api.post("/keys/3/revoke", status=404)["type"] == "/problems/not-found"


def test_a_worker_is_its_keys_until_that_key_counts_no_more(api, admin):
    mine, other = key(api, "worker"), key(api, "worker")
    api.submit()
    api.use(mine["token"])
    node = api.worker()
    lease = node.claim()
    api.use(other["token"])
    for problem in (node.register(403), node.claim(403), node.beat(lease, 403), node.upload(lease, {}, status=403)):
        assert problem["type"] == "/problems/not-your-worker"
    stranger = api.worker("w2")
    stolen = {**lease, "attempt_no": 1}
    assert stranger.beat(stolen, 403)["type"] == "/problems/not-your-worker"
    api.use(admin)
    api.post(f"/keys/{mine['id']}/revoke")
    api.use(other["token"])
    assert node.claim(403)["type"] == "/problems/not-your-worker"
    node.register(200)
    node.beat(lease)


def test_a_worker_from_before_there_were_keys_registers_again(api):
    node = api.worker()
    api.submit()
    lease = node.claim()
    admin = key(api, "admin")["token"]
    api.use(admin)
    api.use(key(api, "worker")["token"])
    assert node.claim(409)["type"] == "/problems/unknown-worker"
    node.beat(lease, 403)
    node.register(200)
    node.beat(lease)


def test_a_key_sends_so_many_requests_and_others_are_not_held_up(start_server):
    api = start_server(rate_per_s=0.5)
    admin = key(api, "admin")["token"]
    api.use(admin)
    reader = key(api, "read")["token"]
    api.use(reader)
    api.get("/runs")
    refused = api.http.get("/api/v1/runs")
    assert (refused.status_code, refused.json()["type"]) == (429, "/problems/rate-exceeded")
    assert int(refused.headers["retry-after"]) >= 1
    assert api.http.get("/healthz").status_code == 200


def test_a_key_queues_so_many_runs(start_server):
    api = start_server(max_queued=3)
    api.use(key(api, "admin")["token"])
    first, second = key(api, "submit")["token"], key(api, "submit")["token"]
    api.use(first)
    again = {"Idempotency-Key": "a"}
    made = api.submit(axes={"seed": [1, 2, 3]}, headers=again)
    problem = api.submit(429)
    assert (problem["type"], problem["queued"], problem["runs"], problem["max_queued"]) == (
        "/problems/queue-full", 3, 1, 3,
    )  # fmt: skip
    assert api.post("/experiments", {"axes": {"seed": [1, 2, 3]}}, 201, again) == made  # a replay adds nothing
    api.use(second)
    api.submit(axes={"seed": [1, 2, 3]})
    api.use(first)
    api.post("/runs/1/cancel")
    api.submit()


def test_no_token_gets_into_the_log_or_an_answer(api, admin, caplog):
    api.submit()
    api.sql("UPDATE run SET spec = '[]'")
    with caplog.at_level(logging.DEBUG):
        answers = [api.get("/runs/1", 500), api.get("/runs", 422, limit="x")]
        api.use(admin[:-1] + "x")
        answers += [api.get("/runs", 401), api.post("/experiments", {}, 401)]
    secret = admin.rpartition("_")[2][:-1]
    assert caplog.records
    text = "".join(f"{record.getMessage()} {record.exc_text}" for record in caplog.records) + str(answers)
    assert secret not in text


def test_every_answer_has_security_headers(api):
    kept = {"/api/v1/runs": "no-cache"}  # it has an ETag, so clients revalidate it each time
    for path in ("/docs", "/healthz", "/api/v1/runs", "/nothing"):
        headers = api.http.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["cache-control"] == kept.get(path, "no-store")


def test_a_key_queues_nothing_more_once_it_has_used_its_node_hours(start_server, make_result):
    api = start_server(max_node_hours=2.0, quota_days=10.0, proxy_user_header="X-User", proxy_addresses="127.0.0.1")
    api.use(key(api, "admin")["token"])
    first, second, workers = (key(api, scope)["token"] for scope in ("submit", "submit", "worker"))
    ada = {"X-User": "ada"}

    def execute(days_ago, hours):
        """Execute a queued run, which ended so many days ago after so many hours."""
        api.use(workers)
        node = api.worker()
        lease = node.claim()
        node.upload(lease, make_result())
        times = "finished_at = finished_at - :ago, claimed_at = finished_at - :ago - :took"
        api.sql(f"UPDATE attempt SET {times} WHERE id = :id", ago=days_ago * 86400.0, took=hours * 3600.0,
                id=lease["attempt_id"])  # fmt: skip

    def used(token):
        api.use(token)
        found = api.get("/whoami")
        return found["node_hours"], found["max_node_hours"]

    api.use(first)
    api.submit()
    execute(11, 5)  # too long ago
    api.use(first)
    api.submit()
    execute(1, 1.5)
    assert used(first) == (pytest.approx(1.5), 2.0)
    api.submit()
    execute(9.9, 24 * 10)  # only the part of the last days counts: 2.4 h
    assert used(first) == (pytest.approx(3.9, rel=1e-3), 2.0)
    refused = api.submit(429)
    assert (refused["type"], refused["max_node_hours"]) == ("/problems/quota-used", 2.0)
    assert "has used 3.9 of 2 node hours of the last 10 days" in refused["detail"]
    assert api.post("/experiments/1/extend", {"repetitions": 1}, 429)["type"] == "/problems/quota-used"
    assert used(second) == (0.0, 2.0)
    api.submit()
    execute(0, 3)
    api.use(None)
    assert api.http.get("/api/v1/whoami", headers=ada).json()["node_hours"] == 0.0
    assert api.http.post("/api/v1/experiments", json={}, headers=ada).status_code == 201
    execute(0, 3)
    api.use(None)
    assert api.http.post("/api/v1/experiments", json={}, headers=ada).status_code == 429


def test_without_a_limit_node_hours_are_not_counted(api):
    api.use(key(api, "admin")["token"])
    assert (api.get("/whoami")["node_hours"], api.get("/whoami")["max_node_hours"]) == (None, None)


def test_keys_of_a_group_share_its_limits(start_server, make_result):
    api = start_server(max_queued=2, max_node_hours=1.0)
    api.use(key(api, "admin")["token"])
    made = {name: key(api, "submit", name=name, group="vision") for name in ("ada", "bob")}
    assert made["ada"]["group"] == "vision"
    ada, bob, other, workers = (
        each["token"] for each in (*made.values(), key(api, "submit"), key(api, "worker"))
    )
    assert [each["group"] for each in api.get("/keys")["items"]] == [None, "vision", "vision", None, None]
    api.use(ada)
    mine = api.submit()
    assert (mine["group"], api.get("/whoami")["group"], api.get("/whoami")["node_hours"]) == ("vision", "vision", 0.0)
    assert (mine["submitter"], mine["submitter_name"]) == (f"key:{made['ada']['id']}", made["ada"]["name"])
    api.use(bob)
    api.submit()
    full = api.submit(429)
    assert (full["type"], full["group"], full["queued"]) == ("/problems/queue-full", "vision", 2)
    assert full["detail"] == "2 runs of group vision are queued and 1 would be added; the limit is 2"
    api.use(other)
    assert api.submit(axes={"seed": [1, 2]})["group"] is None
    assert api.submit(429)["detail"].startswith("2 runs of key:4 are queued")
    for query in ({"group": "vision"}, {"filter": "group = vision"}):
        assert [each["id"] for each in api.get("/experiments", **query)["items"]] == [2, 1]
    assert [each["id"] for each in api.get("/experiments", filter="group = null")["items"]] == [3]
    assert "group: a stored value" in api.get("/experiments", 422, filter="group = speech")["detail"]
    api.use(workers)
    node = api.worker()
    lease = node.claim()
    node.upload(lease, make_result())
    api.sql("UPDATE attempt SET claimed_at = finished_at - 5400")
    api.use(bob)
    assert api.get("/whoami")["node_hours"] == 1.5
    used = api.post(f"/experiments/{mine['id']}/extend", {"repetitions": 1}, 429)
    assert (used["type"], used["group"]) == ("/problems/quota-used", "vision")
    assert used["detail"].startswith("group vision has used 1.5 of 1 node hours of the last 30 days")
    api.use(other)
    assert api.get("/whoami")["node_hours"] == 0.0


@pytest.mark.usefixtures("admin")
@pytest.mark.on_sqlite
@pytest.mark.parametrize("group", ["", "two words", "a,b", "x" * 101])
def test_a_bad_group_names_the_field(api, group):
    assert api.post("/keys", {"scope": "read", "group": group}, 422)["errors"][0]["field"] == "group"
