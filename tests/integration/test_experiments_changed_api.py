"""Submitted experiments: cancelled, tried again, finished, and their tags and notes changed."""

import threading

import httpx
import pytest

from taskloom.server.queue.experiments import planning
from tests.support.patience import DEADLINE_S, until

pytestmark = pytest.mark.both_databases

SWEEP = {
    "name": "sweep",
    "base": {"model": "tiny", "steps": 4},
    "axes": {"scheduler": ["fork-join", "task"], "threads": [1, 2]},
    "repetitions": 3,
}


def test_cancelling_an_experiment_cancels_what_has_not_ended(api, make_result):
    made = api.submit(**SWEEP)
    node = api.worker()
    node.upload(node.claim(), make_result())
    running = node.claim()
    node.beat(running)
    after = api.post(f"/experiments/{made['id']}/cancel")
    assert (after["state"], after["by_state"]) == ("active", {"succeeded": 1, "running": 1, "cancelled": 10})
    assert node.beat(running)["cancel"] is True
    node.upload(running, outcome="cancelled")
    assert api.get(f"/experiments/{made['id']}")["state"] == "cancelled"
    assert api.post(f"/experiments/{made['id']}/cancel")["by_state"] == {"succeeded": 1, "cancelled": 11}


def test_what_came_to_nothing_in_an_experiment_is_tried_again(api, make_result):
    path = f"/experiments/{api.submit(axes={'seed': [1, 2, 3]}, order='sequential')['id']}"
    node = api.worker()
    node.upload(node.claim(), make_result())
    node.upload(node.claim(), error={"slug": "boom"})
    api.post(f"{path}/cancel")
    again = api.post(f"{path}/retry")
    assert (again["state"], again["by_state"]) == ("active", {"succeeded": 1, "queued": 2})
    for _ in range(2):
        node.upload(node.claim(), make_result())
    assert [api.get(f"/runs/{run_id}")["attempts"] for run_id in (1, 2, 3)] == [1, 2, 1]
    assert api.get(path)["state"] == "finished"  # and not cancelled


@pytest.mark.parametrize("verb", ["cancel", "retry"])
def test_an_experiment_that_succeeded_is_neither_cancelled_nor_tried_again(api, make_result, verb):
    path = f"/experiments/{api.submit()['id']}"
    node = api.worker()
    node.upload(node.claim(), make_result())
    problem = api.post(f"{path}/{verb}", status=409)
    assert (problem["type"], problem["current"]) == ("/problems/invalid-transition", "finished")
    assert api.get(path)["state"] == "finished"


def test_an_experiment_is_finished_when_its_runs_are(api, make_result):
    made = api.submit()
    node = api.worker()
    node.upload(node.claim(), make_result())
    assert api.get(f"/experiments/{made['id']}")["state"] == "finished"
    assert api.get("/experiments")["items"][0]["by_state"] == {"succeeded": 1}


def test_unknown_experiments_are_not_found(empty_api):
    assert empty_api.get("/experiments/7", 404)["type"] == "/problems/not-found"
    for verb in ("cancel", "retry"):
        assert empty_api.post(f"/experiments/7/{verb}", status=404)["detail"] == "there is no experiment 7"


def test_work_stops_when_the_client_that_asked_for_it_has_gone(api, monkeypatch):
    started, stopped, go_on = threading.Event(), threading.Event(), threading.Event()
    check = planning.stop_if_gone

    def look():
        started.set()
        go_on.wait(DEADLINE_S)
        try:
            check()
        except BaseException:
            stopped.set()
            raise

    monkeypatch.setattr(planning, "stop_if_gone", look)
    body = {"axes": {"seed": list(range(1000))}}
    for _ in range(3):  # one is running, two wait for their turn
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{api.http.base_url}/api/v1/experiments", json=body, timeout=0.3)
    assert started.wait(DEADLINE_S)
    turns = api.context.expanding._limiter
    until(lambda: turns.statistics().tasks_waiting == 0, "those that wait to be given up")
    go_on.set()
    assert stopped.wait(DEADLINE_S)
    until(lambda: turns.borrowed_tokens == 0, "the expansion to stop")
    assert api.sql("SELECT count(*) FROM experiment") == [(0,)]


@pytest.mark.both_databases
def test_tags_and_notes_are_given_changed_shown_and_filtered_by(api):
    request = {"name": "first", "tags": ["nightly", "ci", "nightly"], "notes": "before the new kernel"}
    made = api.submit(headers={"Idempotency-Key": "k"}, **request)
    api.submit(name="second", tags=["ci"])
    assert (made["tags"], made["notes"]) == (["ci", "nightly"], "before the new kernel")

    def found(*tags):
        return [item["name"] for item in api.get("/experiments", tag=list(tags))["items"]]

    assert (found("ci"), found("ci", "nightly"), found("none")) == (["second", "first"], ["first"], [])
    path = f"/experiments/{made['id']}"
    changed = api.http.patch(f"/api/v1{path}", json={"tags": ["kept"]}).json()
    assert (changed["name"], changed["tags"], changed["notes"]) == ("first", ["kept"], "before the new kernel")
    changed = api.http.patch(f"/api/v1{path}", json={"name": "renamed", "notes": "", "tags": []}).json()
    assert (changed["name"], changed["tags"], changed["notes"]) == ("renamed", [], "")
    assert api.get(path) == changed
    assert changed["request"] == request | {"tags": ["nightly", "ci", "nightly"]}
    assert found("ci") == ["second"]
    assert [item["tags"] for item in api.get("/experiments")["items"]] == [["ci"], []]
    again = api.submit(headers={"Idempotency-Key": "k"}, **request)  # the first answer
    assert (again["name"], again["tags"]) == ("first", ["ci", "nightly"])


@pytest.mark.parametrize("change", [{"tags": ["two words"]}, {"tags": ["x"] * 21}, {"notes": "\u0000"}, {"state": "x"}])
def test_a_change_that_is_not_accepted_names_the_field(empty_api, change):
    answer = empty_api.http.patch("/api/v1/experiments/1", json=change)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"].split("/")[1] == next(iter(change))
    assert empty_api.http.patch("/api/v1/experiments/9", json={"tags": []}).status_code == 404
