"""History in pages: series without points, their points, and their changes."""

import json
from typing import Any

import pytest
from click.testing import CliRunner

from gpt2core.spec.latency import latency
from gpt2core.spec.series import MACHINE, SOFTWARE, series_key
from taskloom import Client
from taskloom.analysis.fingerprint import FINGERPRINT
from taskloom.analysis.naming import configuration
from taskloom.cli import main
from taskloom.server.read import questions
from taskloom.server.read.lists import keyset

pytestmark = pytest.mark.both_databases
NOISE = (1.0, 1.004, 0.996, 1.002, 0.998, 1.006)
SERIES = "/analysis/history/series"


def run_all(worker, make_result, step_s, **environment):
    for s in step_s:
        lease = worker.claim()
        worker.upload(lease, make_result([9, s, s], scheduler=lease["spec"]["scheduler"], environment=environment))


@pytest.fixture
def measured(api, make_result):
    """A series of 12 runs of fork-join that becomes slower at its 7th, and a newer series of two runs of task."""
    asked = {"token_slice": 64, "batch_slice": 1}
    api.submit(base={**asked, "scheduler": "fork-join"}, repetitions=12)
    api.submit(base={**asked, "scheduler": "task"}, repetitions=3)
    node = api.worker()
    run_all(node, make_result, NOISE, core_hash="abc")
    run_all(node, make_result, [s * 1.1 for s in NOISE], core_hash="new")
    run_all(node, make_result, [0.5, 0.25], node="n2")
    api.sql("UPDATE run SET finished_at = 3000 + id WHERE finished_at IS NOT NULL")
    api.node = node
    return api


def walk(api, path, **query):
    found: list[Any] = []
    cursor: dict[str, Any] | None = {}
    while cursor is not None:
        page = api.get(path, **query, **cursor)
        found += page["items"]
        cursor = {"cursor": page["next_cursor"]} if page["next_cursor"] else None
    return found


def ids(api, **query):
    return [row["id"] for row in walk(api, SERIES, limit=1, **query)]


def test_series_are_listed_without_their_points_the_newest_first(measured):
    task, fork_join = walk(measured, SERIES, limit=1)
    assert (task["runs"], task["node"], task["config"]["scheduler"]) == (2, "n2", "task")
    assert (task["median_step_s"], task["recent_s"]) == (0.25, [0.5, 0.25])
    assert task["name"] == configuration(task["config"])
    assert task["name"].startswith("tiny, task, slices ")
    assert (fork_join["runs"], fork_join["machine"]["cpu_model"], fork_join["alerts"]) == (12, "Some CPU", [])
    assert fork_join["first_at"] == "1970-01-01T00:50:01Z"
    (whole,) = measured.get("/analysis/history", run_id=1)["items"]
    assert (fork_join["config"], fork_join["machine"]) == (whole["config"], whole["machine"])
    assert fork_join["recent_s"] == [point["step_s"] for point in whole["points"]]
    assert measured.get(f"{SERIES}/{task['id']}") == task
    assert measured.get(SERIES, total=True)["total"] == 2


def test_series_are_filtered_and_sorted(measured):
    first, second = ids(measured, sort="id")
    assert ids(measured, sort="-runs") == [first, second] == ids(measured, sort="last_at")
    assert ids(measured, node="n2") == ids(measured, filter="scheduler=task") == ids(measured, run_id=13) == [second]
    assert ids(measured, filter=["scheduler=task", "token_slice=64"], node="n1") == []
    columns = "run_id, state, ratio, reason, raised_at, changed_at"
    measured.sql(f"INSERT INTO alert ({columns}) VALUES (7, 'suspected', 1.1, 'slow', 1, 2)")
    assert ids(measured, alert=["suspected", "confirmed"]) == [first]
    assert ids(measured, alert="dismissed") == []
    (alert,) = measured.get(f"{SERIES}/{first}")["alerts"]
    assert (alert["run_id"], alert["state"]) == (7, "suspected")
    states = {point["run_id"]: point["alert"] for point in walk(measured, f"{SERIES}/{first}/points")}
    assert [run_id for run_id, state in states.items() if state is not None] == [7]


def test_series_are_sorted_by_every_column_of_the_list(measured, make_result, monkeypatch):
    measured.post("/experiments/2/cancel")
    measured.submit(base={"scheduler": "serial"})
    run_all(measured.node, make_result, [0.3], node="n0")
    columns = "run_id, kind, state, ratio, reason, raised_at, changed_at"
    for run_id, kind in ((13, "change"), (14, "change"), (7, "threshold")):
        measured.sql(f"INSERT INTO alert ({columns}) VALUES ({run_id}, '{kind}', 'suspected', 1.1, 'slow', 1, 2)")
    measured.sql("UPDATE run SET median_step_s = NULL WHERE id = 13")
    fork_join, task, serial = first = ids(measured, sort="id")
    orders = {"name": [fork_join, serial, task], "scheduler": [fork_join, serial, task], "threads": first,
              "node": [serial, fork_join, task], "alerts": [serial, fork_join, task],
              "median_step_s": [task, serial, fork_join]}  # fmt: skip
    for name, order in orders.items():
        assert ids(measured, sort=name) == order, name
        assert ids(measured, sort=f"-{name}") == order[::-1], name
    measured.sql("UPDATE run SET median_step_s = NULL WHERE id = 14")
    assert ids(measured, sort="-median_step_s") == [fork_join, serial, task]  # without a value: the last
    assert "a column, with - before it" in measured.get(SERIES, 422, sort="machine")["errors"][0]["accepted"]
    monkeypatch.setattr(keyset, "WINDOW", 2)
    refused = measured.get(SERIES, 422, sort="name")["errors"][0]["accepted"]
    assert "name only with filters that leave fewer than 2 rows to search (filter, node, alert, run_id)" in refused
    assert ids(measured, sort="name", filter="scheduler = serial") == [serial]
    assert ids(measured, sort="-runs") == [fork_join, task, serial]


def test_the_command_line_lists_series(measured):
    def listed(*options):
        done = CliRunner().invoke(main, ["experiments", "series", *options, "--server", str(measured.http.base_url)])
        assert done.exit_code == 0, done.output
        return done.stdout

    found = json.loads(listed("--sort", "name", "--json"))
    assert found == measured.get(SERIES, sort="name")["items"]
    (row,) = [line for line in listed("--filter", "scheduler = task").splitlines() if "tiny" in line]
    assert all(part in row for part in (found[1]["name"], "n2", "250 ms"))


def test_points_come_in_pages_with_every_metric_that_is_kept(measured):
    series_id, _ = ids(measured, sort="id")
    path = f"{SERIES}/{series_id}/points"
    points = walk(measured, path, limit=5)
    assert [point["run_id"] for point in points] == list(range(1, 13))
    for point in points:
        run = measured.get(f"/runs/{point['run_id']}")
        same = ("experiment_id", "finished_at", "median_step_s", "tokens_per_s", "final_loss", "flagged_steps")
        assert {name: point[name] for name in same} == {name: run[name] for name in same}
        assert point["forward_s"] == pytest.approx(0.3 * run["median_step_s"])
    assert len({point["environment_sha256"] for point in points}) == 2
    newest = measured.get(path, sort="-finished_at", limit=2, finished_since="1970-01-01T00:50:03Z")
    assert [point["run_id"] for point in newest["items"]] == [12, 11]
    late = walk(measured, path, finished_since="1970-01-01T00:50:03Z", finished_until="1970-01-01T00:50:05Z")
    assert [point["run_id"] for point in late] == [3, 4]
    with Client(str(measured.http.base_url)) as client:
        assert [point.run_id for point in client.series_points(series_id, sort="-finished_at")][:2] == [12, 11]
        assert [series.runs for series in client.series(filter={"scheduler": "fork-join"})] == [12]
        assert client.series_changes(series_id).changes[0].first_after == 7


def test_changes_are_those_of_the_history_and_computed_anew_only_for_new_runs(measured, make_result, monkeypatch):
    series_id, other = ids(measured, sort="id")
    address = f"/api/v1{SERIES}/{series_id}/changes"
    first = measured.http.get(address)
    found, (whole,) = first.json(), measured.get("/analysis/history", run_id=1)["items"]
    assert (found["changes"], found["alerts"]) == (whole["changes"], whole["alerts"])
    assert (found["series_id"], found["runs"], found["changes"][0]["first_after"]) == (series_id, 12, 7)
    run_all(measured.node, make_result, [0.5], node="n2")  # a run of the other series
    known = {"If-None-Match": first.headers["etag"]}
    assert measured.http.get(address, headers=known).status_code == 304
    with monkeypatch.context() as nothing:
        nothing.setattr(questions, "QUESTIONS", {})
        assert measured.http.get(address).content == first.content
    measured.post("/analysis/history/7/confirm", status=201)
    asked = measured.http.get(address, headers=known)
    assert (asked.status_code, asked.json()["alerts"][0]["state"]) == (200, "confirming")
    run_all(measured.node, make_result, [1.1], core_hash="new")
    again = measured.http.get(address, headers={"If-None-Match": asked.headers["etag"]})
    assert (again.status_code, again.json()["runs"]) == (200, 13)
    assert measured.get(f"{SERIES}/{other}/changes")["changes"] == []


def test_a_run_that_waits_to_be_traced_is_a_point_without_an_end(api, make_result):
    api.submit(trace=True)
    node = api.worker()
    node.upload(node.claim(), make_result())
    (series,) = api.get(SERIES)["items"]
    (point,) = api.get(f"{SERIES}/{series['id']}/points")["items"]
    assert (series["runs"], series["first_at"], series["recent_s"]) == (1, None, [])
    assert (point["run_id"], point["finished_at"]) == (1, None)


def test_what_fails_is_in_no_series_and_what_is_pruned_leaves_its_own(measured):
    measured.node.upload(measured.node.claim(), error={"slug": "boom"})
    assert measured.sql("SELECT series_id FROM run WHERE id = 15") == [(None,)]
    first, second = ids(measured, sort="id")
    measured.post("/prune", {"older_than_s": 0, "states": ["succeeded"], "experiment_id": 2})
    assert ids(measured) == [first]
    measured.sql("UPDATE run SET finished_at = 9e9 WHERE id = 12")
    measured.post("/prune", {"older_than_s": 0, "states": ["succeeded"]})
    assert [(row["id"], row["runs"]) for row in measured.get(SERIES)["items"]] == [(first, 1)]
    for part in ("", "/points", "/changes"):
        assert measured.get(f"{SERIES}/{second}{part}", 404)["type"] == "/problems/not-found"


def test_every_part_of_a_fingerprint_is_the_machines_or_the_softwares():
    assert {*MACHINE, *SOFTWARE, "memory_bytes"} == set(FINGERPRINT)


@pytest.mark.parametrize(
    ("change", "is_same"),
    [
        ({"steps": 9}, True), ({"seed": 3}, True), ({"cores": [3]}, True), ({"grad_accum": 1}, True),
        ({"threads": 2}, False), ({"lr": 0.5}, False), ({"environment.numba": "1"}, True),
        ({"environment.memory_bytes": 1}, True), ({"environment.node": "n9"}, False),
        ({"environment.cores": [5]}, False),
    ],
)  # fmt: skip
def test_a_series_goes_on_where_software_changes(make_result, change, is_same):
    result = make_result()
    before = series_key(result["config"], result["environment"])
    for name, value in change.items():
        part, _, key = name.rpartition(".")
        result["environment" if part else "config"][key] = value
    assert (series_key(result["config"], result["environment"]) == before) == is_same


def test_training_and_inference_are_series_of_their_own(api, make_result):
    """A point of inference has the phases of its mode and the 99th percentile of its steps."""
    asked = {"token_slice": 64, "batch_slice": 1}
    api.submit(base=asked, axes={"mode": ["train", "infer"]})
    node = api.worker()
    for _ in range(2):
        lease = node.claim()
        mode = lease["spec"].get("mode", "train")
        result = make_result([9, 1, 2, 3], mode=mode)
        if mode == "infer":
            times = {name: {p: values for p, values in result[name].items() if p in ("data", "forward")}
                     for name in ("phase_s", "phase_busy_s")}  # fmt: skip
            found_s = latency([1.0, 2.0, 3.0])
            result |= {**times, "losses": [], "weights_sha256": None, "outputs_sha256": "o", "latency": found_s,
                       "outputs_sketch": [1.0] * 64}  # fmt: skip
        node.upload(lease, result)
    found = {row["config"].get("mode", "train"): row for row in walk(api, SERIES)}
    points = {mode: walk(api, f"{SERIES}/{row['id']}/points") for mode, row in found.items()}
    assert {mode: len(each) for mode, each in points.items()} == {"train": 1, "infer": 1}
    (trained,), (inferred,) = points["train"], points["infer"]
    assert (inferred["median_step_s"], inferred["latency_p99_s"], trained["latency_p99_s"]) == (2.0, 3.0, None)
    assert inferred["forward_s"] is not None
    assert [inferred[name] for name in ("loss_s", "backward_s", "update_s", "final_loss")] == [None] * 4
    assert trained["backward_s"] is not None
