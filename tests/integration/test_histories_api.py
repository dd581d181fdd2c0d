"""Histories of runs and experiments: changes of state with time, actor and reason."""

import pytest

pytestmark = pytest.mark.both_databases


def changes(api, path):
    items = api.get(path)["items"]
    assert [row["id"] for row in items] == sorted(row["id"] for row in items)
    assert [row["at"] for row in items] == sorted(row["at"] for row in items)
    return [
        (row["verb"], row["state"], row["attempt_no"], row["attempt_state"], row["actor"], row["reason"])
        for row in items
    ]


def test_every_change_of_a_run_has_its_time_actor_and_reason(api, make_result):
    api.submit()
    node = api.worker()
    lost = node.claim()
    node.beat(lost)
    node.beat(lost, step=1)
    api.let_lease_run_out(lost["attempt_id"])
    api.reap()
    given_back = node.claim()
    node.upload(given_back, outcome="cancelled", error={"slug": "released"})
    failed = node.claim()
    node.beat(failed)
    node.upload(failed, error={"slug": "out-of-memory"})
    api.post("/runs/1/retry")
    node.upload(node.claim(), make_result())
    assert changes(api, "/runs/1/changes") == [
        ("submit", "queued", None, None, "local", None),
        ("claim", "leased", 1, "leased", "worker:w1", None),
        ("start", "running", 1, "running", "worker:w1", None),
        ("requeue", "queued", 1, "lost", "server", "no heartbeat before its lease expired"),
        ("claim", "leased", 2, "leased", "worker:w1", None),
        ("requeue", "queued", 2, "cancelled", "worker:w1", "handed back by its worker"),
        ("claim", "leased", 3, "leased", "worker:w1", None),
        ("start", "running", 3, "running", "worker:w1", None),
        ("fail", "failed", 3, "failed", "worker:w1", "out-of-memory"),
        ("retry", "queued", None, None, "local", None),
        ("claim", "leased", 4, "leased", "worker:w1", None),
        ("succeed", "succeeded", 4, "succeeded", "worker:w1", None),
    ]
    assert changes(api, "/experiments/1/changes") == changes(api, "/runs/1/changes")


def test_what_a_worker_says_after_its_lease_ran_out_is_in_the_history(api, make_result):
    api.submit()
    node = api.worker()
    lease = node.claim()
    api.let_lease_run_out(lease["attempt_id"])
    api.reap()
    node.beat(lease)
    node.register(boot_id="boot-2")
    node.upload(node.claim(), make_result())
    node.upload(lease, make_result())
    assert changes(api, "/runs/1/changes")[2:] == [
        ("requeue", "queued", 1, "lost", "server", "no heartbeat before its lease expired"),
        ("renew", "running", 1, "running", "worker:w1", "heartbeat after its lease had expired"),
        ("requeue", "queued", 1, "lost", "worker:w1", "its worker was started again"),
        ("claim", "leased", 2, "leased", "worker:w1", None),
        ("succeed", "succeeded", 2, "succeeded", "worker:w1", None),
        ("supersede", "succeeded", 1, "superseded", "worker:w1", "late: the run had continued without this attempt"),
    ]


def test_a_cancellation_names_the_key_that_asked_for_it_and_a_deadline_the_server(api):
    admin = api.post("/keys", {"scope": "admin"}, 201)
    api.use(admin["token"])
    api.submit(axes={"seed": [1, 2, 3]}, order="sequential")
    node, other = api.worker(), api.worker("w2")
    lease = node.claim()
    api.post("/runs/1/cancel")
    api.post("/runs/1/cancel")
    node.upload(lease, outcome="cancelled", error={"slug": "cancelled"})
    late = other.claim()
    api.let_deadline_pass(late["attempt_id"])
    api.reap()
    api.post("/experiments/1/cancel")
    assert changes(api, "/runs/1/changes")[2:] == [
        ("request-cancel", "leased", None, None, "key:1", None),
        ("cancel", "cancelled", 1, "cancelled", "worker:w1", "cancelled"),
    ]
    assert changes(api, "/runs/2/changes")[-1] == ("fail", "failed", 1, "failed", "server", "deadline-exceeded")
    assert changes(api, "/runs/3/changes")[-1] == ("cancel", "cancelled", None, None, "key:1", None)


def test_a_block_that_the_stopping_rule_adds_says_so(api, make_result):
    api.submit(stop={"rel_ci": 0.1})
    node = api.worker()
    node.upload(node.claim(), make_result([9, 1, 1], batch_slice=4))
    assert changes(api, "/runs/2/changes") == [
        ("submit", "queued", None, None, "server", "the stopping rule asks for repetition 2")
    ]


def test_runs_and_experiments_say_when_they_started_and_ended(api, make_result):
    api.submit(axes={"seed": [1, 2]}, order="sequential")
    node = api.worker()

    def instants():
        shown = [api.get("/experiments/1"), api.get("/runs/1"), api.get("/runs")["items"][0]]
        return [(one["started_at"], one["finished_at"]) for one in shown]

    assert instants() == [(None, None)] * 3
    lease = node.claim()
    node.beat(lease)
    ((started, _), *_) = found = instants()
    assert started is not None
    assert found == [(started, None)] * 3
    assert api.get("/runs/1")["history"][0]["started_at"] == started
    node.upload(lease, make_result())
    (of_experiment, of_run, listed) = instants()
    assert of_experiment == (started, None)
    assert of_run == listed
    assert of_run[0] == started < of_run[1]
    api.post("/runs/2/cancel")
    assert api.get("/experiments/1")["finished_at"] == api.get("/runs/2")["finished_at"] is not None
    api.post("/runs/2/retry")
    assert api.get("/experiments/1")["finished_at"] is None
    assert api.get("/runs/2")["started_at"] is None
    node.beat(node.claim())
    api.let_lease_run_out(2)
    api.reap()
    assert api.get("/runs/2")["started_at"] is not None
    api.post("/experiments/1/cancel")
    ended = api.get("/experiments/1")
    assert (ended["started_at"], ended["finished_at"]) == (started, api.get("/runs/2")["finished_at"])


def test_histories_come_in_pages(api):
    api.submit(axes={"seed": [1, 2, 3]})
    first = api.get("/experiments/1/changes", limit=2)
    rest = api.get("/experiments/1/changes", limit=2, cursor=first["next_cursor"])
    assert [row["run_id"] for row in first["items"] + rest["items"]] == [1, 2, 3]
    assert rest["next_cursor"] is None
    for path in ("/experiments/2/changes", "/runs/9/changes"):
        assert api.get(path, 404)["type"] == "/problems/not-found"


def test_an_idempotency_key_belongs_to_whose_key_it_is(api):
    admin = api.post("/keys", {"scope": "admin"}, 201)["token"]
    api.use(admin)
    others = [api.post("/keys", {"scope": "submit"}, 201)["token"] for _ in range(2)]
    made = []
    for token, seed in zip((admin, *others), range(3), strict=True):
        api.use(token)
        made += [api.submit(headers={"Idempotency-Key": "nightly"}, axes={"seed": [seed]})["id"] for _ in range(2)]
    assert made == [1, 1, 2, 2, 3, 3]
    api.submit(409, {"Idempotency-Key": "nightly"}, axes={"seed": [7]})
