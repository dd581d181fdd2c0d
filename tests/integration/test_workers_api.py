import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import text

from tests.support.caller import Node
from tests.support.patience import DEADLINE_S, until

pytestmark = pytest.mark.both_databases


def test_a_worker_registers_and_is_listed(api):
    node = api.worker(labels={"site": "a"}, software={"hash": "x"}, topology={"cpu_model": "c"}, cores=[3, 1, 2])
    found = api.get("/workers/w1")
    assert api.get("/workers")["items"] == [found]
    assert (found["cores"], found["labels"], found["current_attempt_id"]) == ([1, 2, 3], {"site": "a"}, None)
    again = node.register(200, memory_bytes=5)
    assert again["registered_at"] == found["registered_at"]
    assert again["seen_at"] > found["seen_at"]
    assert again["memory_bytes"] == 5


def test_a_late_registration_of_a_process_that_was_replaced_changes_nothing(api):
    node = api.worker(labels={"process": "old"})
    api.submit()
    node.register(200, boot_id="boot-2", labels={"process": "new"})
    lease = node.claim()
    late = {**node.identity, "boot_id": "boot-1", "labels": {"process": "old"}}
    for send, path in ((api.put, "/workers/w1"), (api.post, "/workers")):
        assert send(path, late, 409)["type"] == "/problems/stale-boot"
    found = api.get("/workers/w1")
    assert (found["boot_id"], found["labels"]) == ("boot-2", {"process": "new"})
    assert found["current_attempt_id"] == lease["attempt_id"]
    node.beat(lease)
    node.register(200, boot_id="boot-3")
    for boot in ("boot-1", "boot-2"):
        node.register(409, boot_id=boot)


def test_an_older_process_of_the_same_machine_is_never_the_newer_one(api):
    node = api.worker(boot_id="newer", machine_boot_id="m", started_s=20.0)
    older = {"boot_id": "older", "started_s": 10.0}  # its first message arrives last
    assert node.register(409, **older)["type"] == "/problems/stale-boot"
    assert api.get("/workers/w1")["boot_id"] == "newer"
    node.register(200, **older, machine_boot_id="n")  # of another machine, or of this one after a reboot
    node.register(200, boot_id="newest", started_s=10.5)


def test_another_spool_takes_over_an_id_only_from_a_process_that_left_or_is_silent(start_server):
    api = start_server(lease_s=60.0)
    node = api.worker(spool_id="one")
    refused = node.register(409, boot_id="boot-2", spool_id="two")
    assert refused["type"] == "/problems/worker-elsewhere"
    for part in ("active with another spool on node-of-w1", "another --worker-id", "been silent for 60 s"):
        assert part in refused["detail"]
    assert api.get("/workers/w1")["spool_id"] == "one"
    node.register(200, boot_id="boot-3", spool_id="one")  # the same spool: it was restarted
    api.sql("UPDATE worker SET seen_at = seen_at - 61")
    node.register(200, boot_id="boot-4", spool_id="two")
    node.register(409, boot_id="boot-5", spool_id="three")
    api.post("/workers/w1/leave", {"boot_id": "boot-4"}, 204)
    node.register(200, boot_id="boot-5", spool_id="three")
    node.register(200, boot_id="boot-6", spool_id=None)  # a worker of an older release does not report it


def test_registering_by_post_is_the_same(api):
    node = api.worker()
    assert api.post("/workers", node.identity)["worker_id"] == "w1"
    assert api.post("/workers", {**node.identity, "worker_id": "w2"}, 201)["worker_id"] == "w2"


@pytest.mark.on_postgres
def test_a_first_registration_may_come_twice_at_once(api):
    identity = {**api.worker("w1").identity, "worker_id": "new"}
    with ThreadPoolExecutor(2) as pool:
        with api.context.database.write() as session:
            session.execute(text("LOCK TABLE worker IN SHARE MODE"))  # other transactions may read it, but not write
            sent = [pool.submit(api.http.post, "/api/v1/workers", json=identity) for _ in range(2)]
            until(lambda: api.sql("SELECT count(*) FROM pg_locks WHERE NOT granted") == [(2,)], "two registrations")
        assert sorted(one.result(DEADLINE_S).status_code for one in sent) == [200, 201]


def test_the_address_and_the_body_name_the_same_worker(api):
    node = api.worker()
    problem = api.put("/workers/w2", node.identity, 422)
    assert problem["errors"][0]["pointer"] == "/worker_id"


@pytest.mark.parametrize(
    ("change", "field"),
    [({"worker_id": "a b"}, "worker_id"), ({"cores": []}, "cores"), ({"memory_bytes": 0}, "memory_bytes"),
     ({"memory_bytes": 10**30}, "memory_bytes"), ({"node": ""}, "node"), ({"cores": [-1]}, "cores")],
)  # fmt: skip
def test_bad_registrations_name_the_field(empty_api, change, field):
    identity = {"worker_id": "w1", "boot_id": "b", "node": "n", "cores": [0], "memory_bytes": 1, **change}
    problem = empty_api.post("/workers", identity, 422)
    assert problem["errors"][0]["pointer"].startswith(f"/{field}")


def test_workers_are_paged_by_id(api):
    for name in ("c", "a", "b"):
        api.worker(name)
    page = api.get("/workers", limit=2)
    assert [w["worker_id"] for w in page["items"]] == ["a", "b"]
    rest = api.get("/workers", limit=2, cursor=page["next_cursor"])
    assert ([w["worker_id"] for w in rest["items"]], rest["next_cursor"]) == (["c"], None)


def test_unknown_workers_are_not_found(empty_api):
    assert empty_api.get("/workers/nobody", 404)["type"] == "/problems/not-found"


NESTED = json.loads("[" * 300 + "]" * 300)


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"labels": {"a": "\ud800"}}, "invalid-request"),
        ({"labels": {"\ud800": "a"}}, "invalid-request"),
        ({"labels": {"a": "\0"}}, "invalid-request"),
        ({"labels": {str(i): "" for i in range(100)}}, "invalid-request"),
        ({"node": "a\0b"}, "invalid-request"),
        ({"software": {"hash": "x" * 1000}}, "invalid-request"),
        ({"topology": {"caches": NESTED}}, "body-too-complex"),
        ({"topology": {"clock": 1e400}}, "invalid-request"),
        ({"topology": {"clock": 10**400}}, "invalid-request"),
        ({"topology": {"flags": "x" * 100_000}}, "invalid-request"),
        ({"memory_bytes": 10**400}, "invalid-request"),
        ({"started_s": float("nan")}, "invalid-request"),
    ],
)
def test_a_registration_is_looked_at_whole_before_it_is_taken(empty_api, change, kind):
    identity = {"worker_id": "w1", "boot_id": "b", "node": "n", "cores": [0], "memory_bytes": 1, **change}
    content = json.dumps(identity).replace("Infinity", "1e400")
    headers = {"Content-Type": "application/json"}
    answer = empty_api.http.post("/api/v1/workers", content=content, headers=headers)
    assert (answer.status_code, answer.json()["type"]) == (422, f"/problems/{kind}"), answer.text
    assert empty_api.get("/workers") == {"items": [], "unreadable": [], "next_cursor": None}


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("labels", '{"a": "\\ud800"}'),
        ("labels", '{"a": 5}'),
        ("topology", json.dumps({"caches": NESTED})),
        ("topology", '{"clock": 1' + "0" * 400 + "}"),
        ("software", "[]"),
    ],
)
def test_a_row_that_cannot_be_read_is_skipped_and_named(api, column, value):
    for name in ("w1", "w2", "w3"):
        api.worker(name)
    api.sql(f"UPDATE worker SET {column} = :value WHERE worker_id = 'w2'", value=value)
    page = api.get("/workers")
    assert [worker["worker_id"] for worker in page["items"]] == ["w1", "w3"]
    assert page["unreadable"] == ["w2"]
    assert "unreadable" in api.get("/workers/w2", 404)["detail"]
    api.worker("w2")
    assert api.get("/workers")["unreadable"] == []


def test_nobody_elses_key_gets_the_cores_of_a_running_attempt(house):
    taken = {"node": "node-of-w1", "cores": [1, 2]}
    house.use(house.tokens["other-worker"])
    node = Node(house, "w3", **taken)
    assert node.register(409)["type"] == "/problems/cores-taken"
    node.register(201, cores=[2, 3])
    node.register(409, cores=[0])
    assert house.get("/workers", 403)
    house.use(house.tokens["worker"])  # the owner's key may, and any other once that has expired
    Node(house, "w4", **taken).register(201)
    house.use(house.tokens["admin"])
    house.post("/keys/4/revoke")
    house.use(house.tokens["other-worker"])
    node.register(200, cores=[0])
