"""A finished experiment gets further blocks on its node; its intervals are then those that hold at any time."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from click.testing import CliRunner

from taskloom import Client
from taskloom.cli import main
from tests.support.patience import until

pytestmark = pytest.mark.both_databases

BASE = {"model": "tiny", "token_slice": 64, "batch_slice": 1}
AXES = {"scheduler": ["fork-join", "task"]}


@pytest.fixture
def made(api):
    return api.submit(base=BASE, axes=AXES, repetitions=6)


@pytest.fixture
def node(api):
    return api.worker()


def run(node, make_result, runs, ratio=1.2):
    for i in range(runs):
        lease = node.claim()
        s = (1 + 0.01 * (i // 2)) * (ratio if lease["spec"]["scheduler"] == "fork-join" else 1.0)
        node.upload(lease, make_result([9, s, s], scheduler=lease["spec"]["scheduler"]))


def extend(api, made, repetitions, status=200):
    return api.post(f"/experiments/{made['id']}/extend", {"repetitions": repetitions}, status)


def test_further_blocks_are_those_of_more_repetitions_and_run_on_the_same_node(api, made, node, make_result):
    other = api.worker("w2")
    run(node, make_result, 12)
    shown = api.get(f"/experiments/{made['id']}")
    assert (shown["state"], shown["extended"]) == ("finished", 0)
    shown = extend(api, made, 2)
    assert (shown["state"], shown["runs"], shown["extended"], shown["finished_at"]) == ("active", 16, 2, None)
    other.claim(204)  # its node is not that of the experiment
    run(node, make_result, 4)
    shown = api.get(f"/experiments/{made['id']}")
    assert (shown["state"], shown["by_state"]) == ("finished", {"succeeded": 16})
    plan = api.post("/experiments?dry_run=true", {**made["request"], "repetitions": 8})["order"]
    runs = api.runs(made["id"])
    assert [each["variant"] for each in runs] == [each["variant"] for each in plan]
    assert [(each["block"], each["repetition"], each["position"]) for each in runs] == [
        (i // 2, i // 2 + 1, i) for i in range(16)
    ]
    reasons = {each["reason"] for each in api.get(f"/experiments/{made['id']}/changes", limit=500)["items"]}
    assert "extended by 2 repetitions" in reasons
    assert extend(api, made, 1)["extended"] == 3
    run(node, make_result, 2)
    assert api.get(f"/experiments/{made['id']}")["runs"] == 18


def test_intervals_are_then_those_that_hold_at_any_time(api, made, node, make_result):
    run(node, make_result, 12)
    assert api.get("/analysis/sweep", experiment_id=made["id"])["sequential"] is False
    extend(api, made, 1)
    run(node, make_result, 2)
    assert api.get("/analysis/sweep", experiment_id=made["id"])["sequential"] is True
    a, b = (f"experiment_id={made['id']},scheduler={scheduler}" for scheduler in AXES["scheduler"])
    found = api.get("/analysis/compare", a=a, b=b)
    assert (found["sequential"], found["verdict"], found["n"]) == (True, "faster", 7)
    card = api.get("/analysis/report", experiment_id=made["id"])["card"]
    (said,) = [rule["evidence"] for rule in card if "added" in rule["evidence"]]
    assert said == "1 repetition added after the first results; intervals hold at any time"


def test_who_waits_gets_the_first_answer(api, node, make_result):
    body = {"base": BASE, "axes": AXES, "repetitions": 1}
    first = api.submit(headers={"Idempotency-Key": "k"}, **body)
    run(node, make_result, 2)
    extend(api, first, 3)
    assert api.submit(headers={"Idempotency-Key": "k"}, **body) == first


def test_after_a_stopping_rule(api, node, make_result):
    made = api.submit(base=BASE, axes=AXES, repetitions=1, stop={"rel_ci": 0.0001, "max_repetitions": 2})
    run(node, make_result, 4)
    assert api.get(f"/experiments/{made['id']}")["stopping"]["reason"] == "max-repetitions"
    assert extend(api, made, 2)["runs"] == 8
    run(node, make_result, 4)
    api.reap()
    shown = api.get(f"/experiments/{made['id']}")
    assert (shown["state"], shown["runs"], shown["stopping"]["reason"]) == ("finished", 8, "max-repetitions")


def test_a_verdict_is_about_all_runs_also_in_the_moment_after_the_last_one(start_server, make_result):
    api = start_server(keep_verdicts=True, poll_s=0.05)
    node, made = api.worker(), api.submit(base=BASE, axes=AXES, repetitions=6)

    def verdict(shown=None):
        shown = shown or api.get(f"/experiments/{made['id']}")
        return shown["verdict"] and shown["verdict"]["runs"]

    run(node, make_result, 12)
    until(lambda: verdict() == 12)
    assert verdict(extend(api, made, 1)) is None
    assert api.get("/experiments", filter="verdict = faster")["items"] == []
    run(node, make_result, 2)
    assert verdict() in (None, 14)
    until(lambda: verdict() == 14)
    assert [each["id"] for each in api.get("/experiments", filter="verdict = faster")["items"]] == [made["id"]]
    extend(api, made, 1)
    run(node, make_result, 1)
    cancelled = api.runs(made["id"])[-1]["id"]
    api.post(f"/runs/{cancelled}/cancel")
    until(lambda: verdict() == 15)
    api.post(f"/runs/{cancelled}/retry")
    assert (verdict(), api.get("/experiments", filter="verdict = faster")["items"]) == (None, [])


def test_what_cannot_be_extended(api, made, node, make_result):
    refused = extend(api, made, 2, 409)
    assert (refused["type"], refused["current"]) == ("/problems/invalid-transition", "active")
    assert "only a finished experiment can be extended" in refused["detail"]
    api.post(f"/experiments/{made['id']}/cancel")
    assert extend(api, made, 2, 409)["current"] == "cancelled"
    sequential = api.submit(base=BASE, axes=AXES, order="sequential")
    tuning = api.submit(base=BASE, space={"threads": [1]}, tune={"runs": 1, "confirm": 0, "fresh": 0})
    run(node, make_result, 4)
    for experiment, why in ((sequential, "has the order sequential"), (tuning, "only a finished")):
        assert why in extend(api, experiment, 1, 409)["detail"]
    assert extend(api, {"id": 99}, 1, 404)["type"] == "/problems/not-found"
    for wrong in (0, 1001, "many", None):
        assert extend(api, made, wrong, 422)["errors"][0]["pointer"] == "/repetitions"


def test_limits_hold(start_server, make_result):
    api = start_server(max_runs=6, max_queued=3)
    made = api.submit(base=BASE, axes=AXES, repetitions=1)
    run(api.worker(), make_result, 2)
    assert extend(api, made, 3, 422)["type"] == "/problems/expansion-too-large"
    assert extend(api, made, 2, 429)["type"] == "/problems/queue-full"
    assert extend(api, made, 1)["runs"] == 4


def test_an_experiment_without_a_name_is_named_by_its_question(api):
    made = api.submit(base=BASE, axes={**AXES, "threads": [1, 2]})
    assert made["name"] == "fork-join or task? tiny, 1 and 2 threads"
    assert [each["name"] for each in api.get("/experiments", name="task?")["items"]] == [made["name"]]
    assert api.submit(base=BASE, name="mine")["name"] == "mine"
    changed = api._expect(api.http.patch(f"/api/v1/experiments/{made['id']}", json={"name": "other"}), 200)
    assert changed["name"] == "other"


def test_the_command_and_the_client(api, made, node, make_result):
    run(node, make_result, 12)
    url = str(api.http.base_url)
    done = CliRunner().invoke(
        main, ["experiments", "extend", str(made["id"]), "--repetitions", "1", "--json", "--server", url]
    )
    assert (done.exit_code, json.loads(done.stdout)["runs"]) == (0, 14)
    again = CliRunner().invoke(main, ["experiments", "extend", str(made["id"]), "--repetitions", "1", "--server", url])
    shown = CliRunner().invoke(main, ["experiments", "show", str(made["id"]), "--server", url]).stdout
    assert "extended by 1 repetition: its intervals are those that hold at any time" in shown
    assert (again.exit_code, "only a finished experiment can be extended" in again.stderr) == (3, True)
    run(node, make_result, 2)
    with Client(url) as client:
        assert client.extend_experiment(made["id"], 2).extended == 3


def test_the_command_waits_for_the_further_runs(api, made, node, make_result):
    run(node, make_result, 12)
    asked = ["experiments", "extend", str(made["id"]), "--repetitions", "1", "--wait"]
    asked += ["--server", str(api.http.base_url)]
    with ThreadPoolExecutor() as pool:
        command = pool.submit(CliRunner().invoke, main, asked)
        until(lambda: api.get(f"/experiments/{made['id']}")["by_state"].get("queued"))
        run(node, make_result, 2)
        done = command.result(timeout=60)
    assert (done.exit_code, done.stdout.count("succeeded")) == (0, 14), done.output
    assert "the only comparison" in done.stdout.splitlines()[-1] or done.stdout.splitlines()[-1].startswith("verdict: ")


def test_of_two_extensions_at_the_same_moment_one_is_refused(start_server, make_result):
    servers = start_server(), start_server()
    made = servers[0].submit(base=BASE, axes=AXES, repetitions=6)
    run(servers[0].worker(), make_result, 12)
    with ThreadPoolExecutor(2) as pool:
        posts = [pool.submit(api.http.post, f"/api/v1/experiments/{made['id']}/extend", json={"repetitions": 1})
                 for api in servers]  # fmt: skip
        assert sorted(post.result().status_code for post in posts) == [200, 409]
    assert servers[1].get(f"/experiments/{made['id']}")["by_state"] == {"succeeded": 12, "queued": 2}
