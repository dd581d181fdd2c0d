"""Runs with a goal through the API: what the way to it took, in analysis and export, and what it cost."""

import json

import pytest

pytestmark = pytest.mark.both_databases

BASE = {"steps": 6, "warmup": 1, "stop_at": "loss=4.75"}
AIM = {"metric": "loss", "value": 4.75}
WAY = {**AIM, "reached": True, "steps": 4, "time_s": 1.5, "energy_j": 6.0, "energy_missing": None}
MISSED = {**AIM, "reached": False, "steps": None, "time_s": None, "energy_j": None,
          "energy_missing": "the goal was not reached"}  # fmt: skip
SPENT = {"starting_s": 1.0, "timed_s": 3.0}


def aimed(make_result, losses, goal):
    """A result of at most 6 steps with so many losses."""
    result = make_result([0.9, *[0.2] * (len(losses) - 1)], losses, steps=6, stop_at={"loss": 4.75})
    return {**result, "goal": goal, "node_time": SPENT}


def test_the_way_to_the_goal_is_in_analysis_and_export_and_has_its_cost(start_server, make_result):
    api = start_server(price_per_node_hour=7.2)
    experiment, node = api.submit(base=BASE, repetitions=2)["id"], api.worker()
    first = node.claim()
    node.upload(first, aimed(make_result, [5.0, 4.9, 4.8, 4.7], WAY))
    found = api.get(f"/runs/{first['run_id']}")
    assert found["spec"]["stop_at"] == {"loss": 4.75}
    assert (found["cost"], found["cost_missing"]) == (pytest.approx(4.0 * 7.2 / 3600), None)
    assert (found["cost_to_goal"], found["cost_to_goal_missing"]) == (pytest.approx(1.5 * 7.2 / 3600), None)
    second = node.claim()
    waiting = api.get(f"/runs/{second['run_id']}")
    assert (waiting["cost"], waiting["cost_missing"]) == (None, "there is no result")
    assert (waiting["cost_to_goal"], waiting["cost_to_goal_missing"]) == (None, "there is no result")
    (row,) = api.get("/analysis/scaling", experiment_id=experiment)["goals"]
    assert (row["metric"], row["value"], row["reached"], row["runs"]) == ("loss", 4.75, 1, 1)
    assert [row[name]["median"] for name in ("steps", "time_s", "energy_j")] == [4.0, 1.5, 6.0]
    node.upload(second, aimed(make_result, [5.0, 4.9, 4.9, 4.9, 4.9, 4.8], MISSED))
    found = api.get(f"/runs/{second['run_id']}")
    assert (found["cost_to_goal"], found["cost_to_goal_missing"]) == (None, "the goal was not reached")
    (row,) = api.get("/analysis/scaling", experiment_id=experiment)["goals"]
    assert (row["reached"], row["runs"], row["steps"], row["time_s"]) == (1, 2, None, None)
    assert "1 of 2" in api.http.get(f"/reports/{experiment}").text
    columns = "goal_reached,goal_steps,goal_time_s,goal_energy_j"
    rows = api.http.get("/api/v1/exports/runs", params={"format": "csv", "columns": columns, "sort": "id"}).text
    assert rows.splitlines() == [columns, "True,4,1.5,6.0", "False,,,"]
    rows = api.http.get("/api/v1/exports/runs", params={"format": "ndjson", "sort": "id"}).text.splitlines()
    spent = [[json.loads(row)[name] for name in ("node_s", "cost", "cost_to_goal")] for row in rows]
    assert spent == [[4.0, pytest.approx(0.008), pytest.approx(0.003)], [4.0, pytest.approx(0.008), None]]
    (row,) = api.http.get("/api/v1/exports/variants", params={"format": "ndjson"}).text.splitlines()
    assert [json.loads(row)[name] for name in ("node_s", "cost")] == [4.0, pytest.approx(0.008)]


def test_without_a_price_costs_are_null_with_the_reason(api, make_result):
    api.submit(base={"steps": 4, "warmup": 1})
    node = api.worker()
    lease = node.claim()
    node.upload(lease, {**make_result(), "node_time": SPENT, "energy": {"package_j": 5.0, "memory_j": 1.5}})
    found = api.get(f"/runs/{lease['run_id']}")
    reason = "the operator has set no price: TASKLOOM_PRICE_PER_NODE_HOUR"
    assert (found["cost"], found["cost_missing"]) == (None, reason)
    assert (found["cost_to_goal"], found["cost_to_goal_missing"]) == (None, None)
    columns = "node_s,cost,cost_to_goal,energy_j"
    assert api.http.get("/api/v1/exports/runs", params={"columns": columns}).text == f"{columns}\n4.0,,,6.5\n"


@pytest.mark.parametrize(
    ("base", "accepted"),
    [
        ({"stop_at": {"perplexity": 2}}, "a metric of loss or accuracy"),
        ({"stop_at": {"accuracy": 0.5}}, "network gpt2 has no accuracy"),
        ({"stop_at": "loss=2", "mode": "infer"}, "without score"),
    ],
)
def test_a_goal_that_no_run_can_have_is_refused_with_its_field(empty_api, base, accepted):
    answer = empty_api.http.post("/api/v1/experiments", json={"base": base})
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert error["pointer"].endswith("stop_at")
    assert accepted in error["accepted"]
