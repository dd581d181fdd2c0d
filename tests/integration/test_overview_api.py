"""Overview, queue with waiting reasons, workers, variants, the caller's identity, and one event stream of all of
them."""

import json
from datetime import UTC, datetime, timedelta

import pytest

pytestmark = pytest.mark.both_databases


def events(api, *topics, last=None, most=20, until=None):
    """(event, topic, data, id) of one stream, up to `most` events or to the first that fulfils `until`."""
    headers = {} if last is None else {"Last-Event-ID": last}
    found = []
    with api.http.stream("GET", "/api/v1/events", params={"topic": topics}, headers=headers) as answer:
        assert answer.status_code == 200
        now = {}
        for line in answer.iter_lines():
            name, _, value = line.partition(": ")
            if line:
                now[name] = value
            elif "data" in now:
                message = json.loads(now["data"])
                found.append((now["event"], message["topic"], message["data"], now.get("id")))
                now = {}
                if len(found) == most or (until is not None and until(found[-1])):
                    break
            else:
                now = {}
    return found


@pytest.fixture
def node(api, make_result):
    """A worker that executed one run of each of two variants, failed another and runs a fourth. Two runs are queued."""
    api.submit(axes={"scheduler": ["fork-join", "task"]}, repetitions=2, name="busy", order="sequential")
    node = api.worker()
    done = node.claim()
    node.beat(done)
    node.upload(done, make_result([9.0, 0.5, 0.25, 0.5], losses=[4, 3, 2, 1]))
    node.upload(node.claim(), error={"slug": "boom"})
    node.lease = node.claim()
    node.beat(node.lease, stage="training", step=3, steps=9, loss=2.5)
    return node


def test_the_overview_counts_what_is_going_on(api, node, start_server):
    found = api.get("/overview")
    assert found["runs"] == {
        "queued": 1, "leased": 0, "running": 1, "quarantined": 0,
        "ended_24h": {"succeeded": 1, "failed": 1, "cancelled": 0, "quarantined": 0},
    }  # fmt: skip
    assert found["runs_per_h"] == 2
    assert found["workers"] == {
        "idle": 0, "busy": 1, "measuring_peaks": 0, "ending": 0, "silent": 0, "left": 0,
    }  # fmt: skip
    assert (found["active_experiments"], [e["name"] for e in found["experiments"]]) == (1, ["busy"])
    assert found["experiments"][0]["eta_s"] == found["eta_s"] > 0
    busy = "each worker that could run it (1) is busy"
    assert found["waiting"] == [{"reason": "all-busy", "waiting_for": busy, "runs": 1}]
    assert (found["latest"], found["newest_alerts"]) == ([], [])
    assert found["alerts"] == dict.fromkeys(
        ("suspected", "confirming", "confirmed", "dismissed", "above", "below", "within"), 0
    )
    fresh = start_server()
    fresh.post("/experiments/1/cancel")
    fresh.sql("UPDATE run SET finished_at = finished_at - 90000 WHERE id = 1")
    node.upload(node.lease, outcome="cancelled")
    columns = "run_id, state, ratio, reason, raised_at, changed_at"
    fresh.sql(f"INSERT INTO alert ({columns}) VALUES (1, 'confirmed', 1.2, 'slow', 1, 2)")
    found = start_server().get("/overview")
    assert found["runs"]["ended_24h"] == {"succeeded": 0, "failed": 1, "cancelled": 2, "quarantined": 0}
    assert [(e["id"], e["state"]) for e in found["latest"]] == [(1, "cancelled")]
    assert (found["experiments"], found["eta_s"], found["waiting"]) == ([], 0.0, [])
    assert (found["alerts"]["confirmed"], found["newest_alerts"][0]["ratio"]) == (1, 1.2)


def test_the_overview_counts_verdicts_by_the_week_of_their_end(api, start_server):
    monday = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    monday -= timedelta(days=monday.weekday())
    ended = [  # days before this week's Monday, and a verdict
        (0, "faster"), (0, "faster"), (0, "none"), (-0.001, None), (0.001, "same"), (7, "undecided"), (49, "slower"),
        (49.001, "faster"),
    ]  # fmt: skip
    for days, verdict in ended:
        number = api.submit(name=f"{days}")["id"]
        kept = "null" if verdict is None else json.dumps({"verdict": verdict, "sentence": ""})
        api.sql(
            "UPDATE experiment SET finished_at = :at, verdict = :verdict WHERE id = :id", verdict=kept, id=number,
            at=(monday - timedelta(days=days)).timestamp(),
        )  # fmt: skip
    weeks = start_server().get("/overview")["verdicts"]
    assert [(datetime.fromisoformat(week["began_at"]), week["by_verdict"]) for week in weeks] == [
        (monday, {"faster": 2}),
        (monday - timedelta(days=7), {"same": 1, "undecided": 1}),
        (monday - timedelta(days=49), {"slower": 1}),
    ]


def test_the_overview_says_why_the_first_queued_runs_wait(api):
    api.worker("w1")
    api.submit(axes={"seed": [1, 2, 3]})
    api.submit(axes={"seed": [4]}, requires={"labels": {"room": "b"}})
    api.submit(axes={"seed": [5]}, repetitions=2)
    assert api.get("/overview")["waiting"] == [
        {"reason": "runs-before", "waiting_for": "1 run before it in the queue", "runs": 4},
        {"reason": "next", "waiting_for": "it is the next run that a worker claims", "runs": 1},
        {"reason": "no-label", "waiting_for": "no worker has the label room=b", "runs": 1},
    ]


def test_the_queue_is_listed_as_it_is_claimed_with_reasons(api, node):
    api.submit(axes={"seed": [7, 8]}, priority=5, requires={"labels": {"room": "b"}}, name="first")
    first = api.get("/queue/runs", limit=2)
    rows = first["items"] + api.get("/queue/runs", limit=2, cursor=first["next_cursor"])["items"]
    assert [(row["position"], row["run_id"], row["priority"], row["reason"]) for row in rows] == [
        (1, 5, 5, "no-label"), (2, 6, 5, "no-label"), (3, 4, 0, "all-busy"),
    ]  # fmt: skip
    assert (first["total"], rows[0]["experiment_name"]) == (3, "first")
    assert rows[0]["waiting_for"] == "no worker has the label room=b"
    assert [api.get(f"/runs/{row['run_id']}")["queue"]["position"] for row in rows] == [1, 2, 3]
    node.upload(node.lease, error={"slug": "boom"})
    api.worker("w1", labels={"room": "b"})
    assert node.claim()["run_id"] == rows[0]["run_id"]


def test_workers_say_how_they_are_and_what_they_did(api, node):
    worker = api.get("/workers/w1")
    assert (worker["state"], worker["current_attempt_id"]) == ("busy", node.lease["attempt_id"])
    assert (worker["current"]["run_id"], worker["current"]["experiment_id"]) == (3, 1)
    assert worker["current"]["progress"]["loss"] == 2.5
    page = api.get("/workers/w1/attempts", limit=2)
    assert [(row["run_id"], row["state"], row["cores"]) for row in page["items"]] == [
        (3, "running", [0, 1]), (2, "failed", [0, 1]),
    ]  # fmt: skip
    rest = api.get("/workers/w1/attempts", limit=2, cursor=page["next_cursor"])
    assert ([row["run_id"] for row in rest["items"]], rest["next_cursor"]) == ([1], None)
    assert api.get("/workers/w9/attempts", 404)["type"] == "/problems/not-found"
    node.upload(node.lease, error={"slug": "boom"})
    assert api.get("/workers")["items"][0]["state"] == "idle"
    api.sql("UPDATE worker SET ends_at = seen_at + 60")
    assert api.get("/workers/w1")["state"] == "ending"
    api.sql("UPDATE worker SET seen_at = seen_at - 1000")
    assert api.get("/workers/w1")["state"] == "silent"
    node.register()
    api.post("/workers/w1/leave", {"boot_id": "boot-1"}, 204)
    assert api.get("/workers/w1")["state"] == "left"


def test_a_worker_that_measures_peaks_says_so_until_it_claims_a_run(api):
    api.submit()
    node = api.worker("w1", measuring_peaks=True)
    assert api.get("/workers/w1")["state"] == "measuring peaks"
    assert api.get("/runs/1")["queue"]["reason"] == "measuring-peaks"
    found = api.get("/overview")
    assert (found["workers"]["measuring_peaks"], found["workers"]["idle"]) == (1, 0)
    assert found["waiting"][0]["waiting_for"].startswith("the worker that could run it is measuring peaks")
    node.register(measuring_peaks=False)
    assert api.get("/workers/w1")["state"] == "idle"
    node.register(measuring_peaks=True)
    node.upload(node.claim(), error={"slug": "boom"})
    assert api.get("/workers/w1")["state"] == "idle"


def test_a_worker_that_is_gone_can_be_removed_and_comes_back(api, node):
    def remove(status):
        answer = api.http.delete("/api/v1/workers/w1")
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None

    assert remove(409)["current"] == "busy"
    node.upload(node.lease, error={"slug": "boom"})
    assert remove(409)["current"] == "idle"
    api.sql("UPDATE worker SET seen_at = seen_at - 1000")
    assert remove(204) is None
    assert api.get("/workers")["items"] == []
    assert api.get("/workers/w1", 404)["type"] == "/problems/not-found"
    assert remove(404)["type"] == "/problems/not-found"
    assert node.claim(409)["type"] == "/problems/unknown-worker"
    assert api.get("/runs/1")["history"][0]["worker_id"] == "w1"
    node.register()
    assert api.get("/workers/w1")["state"] == "idle"
    assert node.claim()["run_id"] == 4


def test_variants_are_flat_rows_from_what_is_kept(api, node, make_result):
    api.sql("UPDATE run SET flagged_steps = 1 WHERE id = 1")
    fork_join, task = api.get("/experiments/1/variants")["rows"]
    assert (fork_join["variant"], task["variant"]) == ({"scheduler": "fork-join"}, {"scheduler": "task"})
    names = ("runs", "queued", "active", "succeeded", "failed", "cancelled", "quarantined")
    counts = [[row[name] for name in names] for row in (fork_join, task)]
    assert counts == [[2, 0, 0, 1, 1, 0, 0], [2, 1, 1, 0, 0, 0, 0]]
    assert (fork_join["median_step_s"], fork_join["low"], fork_join["flagged_runs"]) == (0.5, None, 1)
    assert (fork_join["final_loss"], fork_join["losses"], fork_join["nodes"]) == (1.0, 1, ["node-of-w1"])
    samples = [row["phase_s"]["backward"] for row in api.get("/runs/1/samples")["items"] if not row["warmup"]]
    assert fork_join["backward_s"] == sorted(samples)[len(samples) // 2]
    assert (task["median_step_s"], task["final_loss"], task["losses"], task["environments"]) == (None, None, 0, 0)
    answer = api.http.get("/api/v1/experiments/1/variants")
    known = {"If-None-Match": answer.headers["ETag"]}
    assert api.http.get("/api/v1/experiments/1/variants", headers=known).status_code == 304
    node.upload(node.lease, make_result([9.0, 0.25, 0.25]))
    assert api.http.get("/api/v1/experiments/1/variants", headers=known).json()["rows"][1]["median_step_s"] == 0.25
    assert api.get("/experiments/9/variants", 404)["type"] == "/problems/not-found"


def test_the_rate_of_a_variant_is_its_tokens_by_their_time(api, make_result):
    api.submit(axes={"threads": [1]}, repetitions=3)
    node = api.worker()
    for step_s in (0.5, 0.25, 4.0):
        node.upload(node.claim(), make_result([9.0, step_s, step_s]))
    (row,) = api.get("/experiments/1/variants")["rows"]
    (scaling,) = api.get("/analysis/scaling", experiment_id=1)["rows"]
    rates = sorted(run["tokens_per_s"] for run in api.get("/runs")["items"])
    assert row["tokens_per_s"] == pytest.approx(scaling["tokens_per_s"])
    assert row["tokens_per_s"] == pytest.approx(rates[1] * 0.5 / ((0.5 + 0.25 + 4.0) / 3))


def test_the_server_says_who_asks(api):
    assert api.get("/whoami") == {
        "actor": "local", "scope": "admin", "key_id": None, "name": None, "expires_at": None, "keys_exist": False,
        "group": None, "node_hours": None, "max_node_hours": None,
    }  # fmt: skip
    admin = api.post("/keys", {"scope": "admin"}, 201)["token"]
    api.use(admin)
    worker = api.post("/keys", {"scope": "worker", "name": "node 7", "expires_in_s": 60}, 201)
    api.use(worker["token"])
    found = api.get("/whoami")
    assert (found["actor"], found["scope"], found["name"], found["keys_exist"]) == ("key:2", "worker", "node 7", True)
    assert found["expires_at"] == worker["expires_at"]


def test_one_stream_tells_of_several_topics(api, node):
    first = events(api, "overview", "workers", "experiment:1", "run:3", most=4)
    assert {(event, topic) for event, topic, _, _ in first} == {
        ("changed", "overview"), ("changed", "workers"), ("changed", "experiment:1"), ("changed", "run:3"),
    }  # fmt: skip
    by_topic = {topic: data for _, topic, data, _ in first}
    assert by_topic["overview"]["runs"]["running"] == 1
    assert by_topic["workers"]["items"][0]["current"]["run_id"] == 3
    assert (by_topic["experiment:1"]["by_state"]["succeeded"], by_topic["run:3"]["progress"]["step"]) == (1, 3)
    last = first[-1][3]
    node.beat(node.lease, stage="training", step=4, steps=9)
    again = events(api, "overview", "run:3", last=last, most=1)
    assert [(event, topic, data["progress"]["step"]) for event, topic, data, _ in again] == [("changed", "run:3", 4)]


def test_a_stream_ends_with_the_last_of_its_topics(api, node):
    def line(n):
        return {"first": n, "lines": [f"line {n}"]}

    body = {"worker_id": "w1", "attempt_no": 1, "progress": {}, "output": line(1)}
    api.post(f"/attempts/{node.lease['attempt_id']}/heartbeat", body)
    node.upload(node.lease, error={"slug": "boom"})
    found = events(api, "run:1", "run:3", most=100)
    assert [(event, data["state"]) for event, topic, data, _ in found if topic == "run:1"] == [
        ("changed", "succeeded"), ("ended", "succeeded"),
    ]  # fmt: skip
    assert [event for event, topic, _, _ in found if topic == "run:3"] == ["changed", "line", "ended"]
    heard = events(api, "run:1", "run:3", last=found[-1][3], most=100)
    assert {event for event, *_ in heard} == {"ended"}


@pytest.mark.parametrize("topic", ["cheese", "run:0", "run:", "experiment:x", "run:9999999999", "workers:1"])
def test_topics_that_there_are_not_are_refused(empty_api, topic):
    assert empty_api.get("/events", 422, topic=topic)["errors"][0]["field"] == "topic"


def test_a_run_that_there_is_not_is_not_found_in_a_stream(empty_api):
    assert empty_api.get("/events", 404, topic=["overview", "run:7"])["type"] == "/problems/not-found"
    assert empty_api.get("/events", 422)["type"] == "/problems/invalid-request"
