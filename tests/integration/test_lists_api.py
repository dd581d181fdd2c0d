"""Lists of runs and experiments: filters, orders, pages and counts equal those of a scan of all rows."""

import itertools
import json

import pytest

from taskloom import tables
from taskloom.contract.experiments import ExperimentSummary
from taskloom.server import paging
from taskloom.server.read.experiments import eta
from taskloom.server.read.experiments import listing as experiments
from taskloom.server.read.lists import keyset
from taskloom.server.read.runs import listing
from tests.support.walked import walk

pytestmark = pytest.mark.both_databases


@pytest.fixture
def runs(api, make_result):
    """Two experiments. One has 8 runs: one failed, two are flagged, one is running. The other has 2 queued runs."""
    axes = {"scheduler": ["fork-join", "task"], "threads": [1, 2]}
    api.submit(axes=axes, repetitions=2, name="First 100%", base={"model": "tiny"},
               requires={"labels": {"room": "a"}})  # fmt: skip
    node = api.worker(labels={"room": "a"})
    for i in range(7):
        lease = node.claim()
        node.beat(lease)
        if i == 3:
            node.upload(lease, error={"slug": "boom", "detail": "it broke", "output": ["line"] * 9})
        else:
            node.upload(lease, make_result([9.0, 0.5 + i % 3]))
    node.beat(node.claim())
    api.submit(axes={"lr": [1, 0.001]}, name="second", base={"batch": 4, "seq": 32})
    api.sql("UPDATE run SET flagged_steps = 2 WHERE id IN (1, 6)")
    api.sql("UPDATE run SET created_at = 1000 + id, started_at = 2000 + id % 5 WHERE started_at IS NOT NULL")
    api.sql("UPDATE run SET finished_at = 3000 + id % 4 WHERE finished_at IS NOT NULL")
    return {run["id"]: run for run in api.get("/runs", limit=500)["items"]}


def sorted_as(runs, key, descending):
    """The expected order; rows without a value are last."""
    with_value = [run for run in runs if run[key] is not None]
    without = [run for run in runs if run[key] is None]
    for part in (with_value, without):
        part.sort(key=lambda run: (run[key] or "", run["id"]) if part is with_value else run["id"], reverse=descending)
    return [run["id"] for run in with_value + without]


LATER = "1970-01-01T00:50:02"
NOTHING = {"label of no experiment": {"label": ["room=a", "room=b"]}}
FILTERS = {
    "none": ({}, bool),
    "state": ({"state": "succeeded"}, lambda run: run["state"] == "succeeded"),
    "states": ({"state": ["failed", "queued"]}, lambda run: run["state"] in ("failed", "queued")),
    "runs of two experiments": ({"run": [2, 9, 99]}, lambda run: run["id"] in (2, 9)),
    "experiment": ({"experiment_id": 1}, lambda run: run["experiment_id"] == 1),
    "node": ({"node": "node-of-w1"}, lambda run: run["node"] == "node-of-w1"),
    "flagged": ({"flagged": "true"}, lambda run: (run["flagged_steps"] or 0) > 0),
    "clean": ({"flagged": "false"}, lambda run: run["flagged_steps"] == 0),
    "setting": ({"filter": "scheduler=task"}, lambda run: run["settings"]["scheduler"] == "task"),
    "settings": (
        {"filter": ["threads=2", "scheduler=task"]},
        lambda run: (run["settings"]["scheduler"], run["settings"]["threads"]) == ("task", 2),
    ),
    "model": ({"filter": "model=tiny"}, lambda run: run["settings"]["model"] == "tiny"),
    "number": ({"filter": "lr=0.001"}, lambda run: run["variant"].get("lr") == 0.001),
    "whole number": ({"filter": "lr=1"}, lambda run: run["variant"].get("lr") == 1),
    "label": ({"label": "room=a"}, lambda run: run["experiment_id"] == 1),
    "ended": ({"finished_since": "1970-01-01T00:50:02Z"}, lambda run: (run["finished_at"] or "") >= LATER),
    "ended before": ({"finished_until": "1970-01-01T00:50:02Z"}, lambda run: "" < (run["finished_at"] or "") < LATER),
    "submitted": ({"since": "1970-01-01T00:16:45Z"}, lambda run: run["created_at"] >= "1970-01-01T00:16:45"),
    "submitted lately": ({"since": "1h", "filter": "seq=32"}, lambda run: run["experiment_id"] == 2),
    "submitted before": ({"until": "1970-01-01T00:16:45Z"}, lambda run: run["created_at"] < "1970-01-01T00:16:45"),
    "several": (
        {"state": ["succeeded", "failed"], "filter": "threads=1", "node": "node-of-w1", "flagged": "false"},
        lambda run: run["settings"]["threads"] == 1 and run["flagged_steps"] == 0 and run["node"] == "node-of-w1",
    ),
}  # fmt: skip
SORTS = ("id", "created_at", "started_at", "finished_at", "median_step_s")


@pytest.mark.parametrize("window", [4, 5_000])
def test_lists_of_runs_are_what_a_look_at_every_row_gives(api, runs, monkeypatch, window):
    monkeypatch.setattr(keyset, "WINDOW", window)
    for (name, (query, belongs)), sort, minus in itertools.product(FILTERS.items(), SORTS, ("", "-")):
        if sort not in ("id", "finished_at") and name not in ("none", "state", "setting", "experiment", "submitted"):
            continue
        wanted = sorted_as([run for run in runs.values() if belongs(run)], sort, minus == "-")
        assert wanted, name
        assert walk(api, "/runs", sort=f"{minus}{sort}", limit=5, **query) == wanted, (name, sort, minus)
    for name, query in NOTHING.items():
        assert walk(api, "/runs", **query) == [], name


def check_sorted(api, path, rows, name):
    """A list sorted by a column, in pages of three and at once: rows without a value last, equal ones by id."""
    for minus, limit in (("", 3), ("-", 500)):
        order = walk(api, path, sort=f"{minus}{name}", limit=limit)
        places = [(rows[each][name], each) for each in order]
        having = [place for place in places if place[0] is not None]
        without = [place for place in places if place[0] is None]
        assert places == having + without, (name, minus)
        assert having == sorted(having, reverse=minus == "-"), (name, minus)
        assert without == sorted(without, reverse=minus == "-"), (name, minus)
        assert len(set(order)) == len(rows), (name, minus)


def test_runs_are_sorted_by_every_column(api, runs):
    phases = {run_id: 0.5 + run_id % 3 for run_id in (1, 3, 6)}
    for run_id, seconds in phases.items():
        api.sql(f"UPDATE run SET phase_s = '{{\"forward\": {seconds}}}', node_timed_s = {seconds} WHERE id = {run_id}")
    api.sql("UPDATE run SET phase_s = NULL WHERE id NOT IN (1, 3, 6)")
    api.sql("UPDATE run SET trainer_dirty = (id = 3) WHERE id < 6")
    rows = {}
    for run_id, run in runs.items():
        spec = api.get(f"/runs/{run_id}")["spec"]
        times = dict.fromkeys(("forward_s", "node_timed_s"), phases.get(run_id))
        more = {"trainer_dirty": run_id == 3 if run_id < 6 else None, **times}
        rows[run_id] = {**spec, "model": spec["model"]["name"], **run, **more, "variant": json.dumps(run["variant"])}
    known = [name for name in listing.SORTS.known if name in rows[1]]
    assert len(known) > len(listing.SORTS.indexed) + 40
    assert {"scheduler", "fusion", "lr", "forward_s", "variant", "tag", "cores"} - set(known) == {"tag", "cores"}
    for name in known:
        check_sorted(api, "/runs", rows, name)


def test_experiments_are_sorted_by_every_column(api, runs):  # noqa: ARG001
    for name in ("g~'ö'~", "g~'ö'~", "g"):
        api.submit(name=name, base={"seq": 32}, commit="abcdef0", dirty=True)
    api.post("/experiments/3/cancel")
    verdicts = {2: ("faster", 1.5), 4: ("slower", 0.5), 5: ("faster", 0.25)}
    for experiment_id, (verdict, ratio) in verdicts.items():
        stored = json.dumps({"verdict": verdict, "ratio": ratio, "sentence": ""})
        api.sql(f"UPDATE experiment SET verdict = '{stored}' WHERE id = {experiment_id}")
    rows = {item["id"]: item for item in api.get("/experiments")["items"]}
    for experiment_id, row in rows.items():
        row["verdict"], row["ratio"] = verdicts.get(experiment_id, (None, None))
    assert {"name", "state", "submitter", "ratio", "dirty", "runs", "notes"} - set(experiments.SORTS.known) == {"notes"}
    for name in experiments.SORTS.known:
        check_sorted(api, "/experiments", rows, name)


def test_what_no_index_sorts_is_sorted_among_few(api, runs, monkeypatch):
    monkeypatch.setattr(keyset, "WINDOW", 4)
    problem = api.get("/runs", 422, sort="-threads")
    (error,) = problem["errors"]
    assert (problem["type"], error["field"], error["value"]) == ("/problems/invalid-request", "sort", "-threads")
    assert "threads only with filters that leave fewer than 4 rows to search (experiment_id, run," in error["accepted"]
    assert "tokens_per_s" in error["accepted"]
    assert api.get("/runs", 422, sort="-threads", filter="scheduler = task")["errors"] == [error]
    for few in ({"experiment_id": 1}, {"run": [2, 9, 1]}, {"state": "queued"}, {"since": "1h"}):
        wanted = [run["id"] for run in api.get("/runs", limit=500, **few)["items"]]
        wanted.sort(key=lambda run_id: (runs[run_id]["settings"]["threads"], run_id))
        assert walk(api, "/runs", sort="threads", limit=2, **few) == wanted, few
    assert api.get("/exports/runs", 422, sort="threads")["errors"][0]["field"] == "sort"
    assert len(walk(api, "/runs", sort="state", limit=3)) == 10
    assert "state only with" in api.get("/runs", 422, sort="state", filter="threads = 2")["errors"][0]["accepted"]
    for _ in range(3):
        api.submit(base={"seq": 32})
    assert "fewer than 4 rows to search (since)" in api.get("/experiments", 422, sort="ratio")["errors"][0]["accepted"]
    assert walk(api, "/experiments", sort="runs", limit=2) == [3, 4, 5, 2, 1]


def test_runs_are_counted_where_that_is_cheap(api, runs):  # noqa: ARG001
    assert api.get("/runs", limit=1)["total"] is None
    for query, count in (({}, 10), ({"state": "succeeded"}, 6), ({"experiment_id": 1, "filter": "threads=2"}, 4)):
        assert api.get("/runs", limit=1, total="true", **query)["total"] == count
    for query in ({"filter": "threads=2"}, {"label": "room=a"}, {"state": "succeeded", "node": "node-of-w1"}):
        assert api.get("/runs", limit=1, total="true", **query)["total"] is None


def test_a_row_says_where_and_how_long_a_run_ran_and_what_went_wrong(api, runs):
    failed = next(run for run in runs.values() if run["state"] == "failed")
    assert failed["error"] == {"slug": "boom", "detail": "it broke"}
    assert (failed["node"], failed["flagged_steps"], failed["median_step_s"]) == (None, None, None)
    done = api.get("/runs", state="succeeded", limit=1)["items"][0]
    assert (done["node"], done["flagged_steps"], done["error"]) == ("node-of-w1", 2, None)
    assert done["duration_s"] == 3000 + done["id"] % 4 - (2000 + done["id"] % 5)
    spec = api.get(f"/runs/{done['id']}")["spec"]
    assert done["settings"] == {name: spec[name] for name in done["settings"]} | {"model": spec["model"]["name"]}


@pytest.mark.parametrize(
    ("path", "query", "field"),
    [
        ("/runs", {"filter": "threads"}, "filter"),
        ("/runs", {"filter": "cheese=1"}, "filter"),
        ("/runs", {"filter": 'threads="2"'}, "filter"),
        ("/runs", {"filter": ["threads=1", "threads=2"]}, "filter"),
        ("/runs", {"label": "room"}, "label"),
        ("/runs", {"since": "yesterday"}, "since"),
        ("/runs", {"since": "2026-11-22"}, "since"),
        ("/runs", {"finished_until": "9" * 7 + "d"}, "finished_until"),
        ("/runs", {"sort": "cheese"}, "sort"),
        ("/runs", {"sort": "--id"}, "sort"),
        ("/runs", {"sort": "tag"}, "sort"),
        ("/experiments", {"sort": "notes"}, "sort"),
        ("/experiments", {"sort": "threads"}, "sort"),
        ("/experiments", {"state": "queued"}, "state"),
        ("/experiments", {"since": "0001-01-01T00:00:00+30:00"}, "since"),
    ],
)
def test_what_cannot_be_filtered_by_is_named(empty_api, path, query, field):
    problem = empty_api.get(path, 422, **query)
    assert (problem["type"], problem["errors"][0]["field"]) == ("/problems/invalid-request", field)


def test_a_cursor_of_nonsense_is_refused(empty_api):
    for text in ("x", "after:x~1", "nan~1", "1~", "~-1", "~99999999999", "inf~1"):
        assert empty_api.get("/runs", 422, cursor=paging.encode(text))["type"] == "/problems/bad-cursor"
    for sort, text in (("node", "0.5~1"), ("node", "'a\0~1"), ("duration_s", "'a~1"), ("flagged_steps", "1e99~1")):
        refused = empty_api.get("/runs", 422, sort=sort, cursor=paging.encode(text))
        assert refused["type"] == "/problems/bad-cursor", text


def test_experiments_are_filtered_sorted_and_counted(api, runs):  # noqa: ARG001
    api.submit(name="THIRD", base={"seq": 32})
    api.post("/experiments/3/cancel")
    assert walk(api, "/experiments", limit=2) == [3, 2, 1]
    assert walk(api, "/experiments", sort="created_at", limit=2) == [1, 2, 3]
    assert walk(api, "/experiments", sort="-finished_at", limit=1) == [3, 2, 1]
    assert walk(api, "/experiments", state=["active"]) == [2, 1]
    assert walk(api, "/experiments", state=["active", "cancelled"], limit=1) == [3, 2, 1]
    assert walk(api, "/experiments", state="finished") == []
    assert walk(api, "/experiments", name="100%") == [1]
    assert walk(api, "/experiments", name="100_") == []
    assert walk(api, "/experiments", name="third") == [3]
    assert walk(api, "/experiments", submitter="local", limit=1) == [3, 2, 1]
    assert walk(api, "/experiments", submitter="key:1") == []
    assert walk(api, "/experiments", label="room=a") == [1]
    assert walk(api, "/experiments", since="1h", limit=1) == [3, 2, 1]
    assert walk(api, "/experiments", until="1h") == []
    assert walk(api, "/experiments", finished_since="1h", sort="finished_at") == [3]
    assert api.get("/experiments", total="true", limit=1, state="active")["total"] == 2


def test_an_experiment_says_who_submitted_it_and_when_it_will_have_ended(api, runs):
    second, first = api.get("/experiments")["items"]
    assert (first["submitter"], first["submitter_name"], first["purpose"]) == ("local", None, "measure")
    assert (first["flagged_runs"], second["flagged_runs"]) == (2, 0)
    done = [run for run in runs.values() if run["state"] == "succeeded"]
    mean_s = sum(run["duration_s"] for run in done) / len(done)
    assert first["eta_s"] == pytest.approx(mean_s)  # one run is running, and there is one worker
    assert second["eta_s"] == pytest.approx(3 * mean_s)  # after the first, estimated from its runs alone
    assert api.get("/experiments/2")["eta_s"] == second["eta_s"]
    api.submit(priority=5, base={"seq": 32})
    assert api.get("/experiments/1")["eta_s"] == pytest.approx(2 * mean_s)
    api.sql("UPDATE worker SET seen_at = 0")
    assert api.get("/experiments/1")["eta_s"] is None


def test_runs_that_no_present_worker_can_execute_have_no_remaining_time(api, make_result):
    nobody = {"labels": {"room": "nowhere"}}
    api.submit(repetitions=2)
    api.submit(priority=5, requires=nobody)
    assert [api.get("/overview")["eta_s"], api.get("/experiments/1")["eta_s"]] == [None, None]
    node = api.worker()
    node.upload(node.claim(), make_result())
    api.sql("UPDATE run SET started_at = finished_at - 10 WHERE id = 1")
    assert [item["eta_s"] for item in api.get("/experiments")["items"]] == [None, pytest.approx(10)]
    assert api.get("/experiments/2")["eta_s"] is None
    node.beat(node.claim())
    assert api.get("/experiments/1")["eta_s"] == pytest.approx(10)  # a claimed run needs no other worker
    api.worker("w2", labels={"room": "nowhere"})
    assert api.get("/experiments/2")["eta_s"] == pytest.approx(5)  # first in the queue, by the time of all runs
    assert api.get("/experiments/1")["eta_s"] == pytest.approx(10)


def test_a_queue_that_nobody_can_execute_has_no_remaining_time(api):
    api.worker()
    api.submit(requires={"labels": {"room": "nowhere"}})
    found = api.get("/overview")
    assert (found["eta_s"], found["experiments"][0]["eta_s"]) == (None, None)
    assert found["waiting"][0]["reason"] == "no-label"


def test_the_remaining_time_is_that_of_the_latest_runs(api, make_result, monkeypatch):
    monkeypatch.setattr(eta, "OF_EXPERIMENT", 3)
    api.submit(repetitions=5, order="sequential")
    node = api.worker()
    for run_id, took_s, mean_s in ((1, 100, 100), (2, 10, 55), (3, 30, 140 / 3), (4, 20, 20)):
        node.upload(node.claim(), make_result())
        api.sql(f"UPDATE run SET started_at = finished_at - {took_s} WHERE id = {run_id}")
        assert api.get("/experiments/1")["eta_s"] == pytest.approx((5 - run_id) * mean_s)


def test_an_experiment_names_the_key_it_was_submitted_with(house):
    house.use(house.tokens["admin"])
    named = house.post("/keys", {"scope": "submit", "name": "ci"}, 201)["token"]
    house.use(named)
    answer = house.submit(calibrates=True, repetitions=6)
    row = house.get("/experiments", limit=1)["items"][0]
    for shown in (answer, row):
        assert (shown["submitter"], shown["submitter_name"], shown["purpose"]) == ("key:9", "ci", "calibrate")


def test_experiments_have_their_model_axes_and_nodes(api, make_result):
    custom = {"layers": 1, "heads": 1, "channels": 16, "vocab": 256, "context": 64}
    many = list(range(30))
    api.submit(base={"model": "gpt2"}, axes={"seed": many}, zip=[{"threads": [1, 2], "batch": [2, 4]}])
    api.submit(axes={"model": ["tiny", "small"]})
    api.submit(base={"model": custom}, space={"threads": [1, 2]}, tune={"runs": 2})
    api.submit(repetitions=3, order="sequential", priority=1)
    for name in ("w2", "w1"):
        node = api.worker(name)
        lease = node.claim()
        node.upload(lease, make_result()) if name == "w1" else node.upload(lease, error={"slug": "boom"})
    known = {
        1: ("gpt2-124m", {"seed": many[:20], "threads": [1, 2], "batch": [2, 4]}, []),
        2: (None, {"model": ["tiny", "small"]}, []),
        3: ("custom", {"threads": [1, 2]}, []),
        4: ("tiny", {}, ["node-of-w1", "node-of-w2"]),
    }
    for item in api.get("/experiments")["items"]:
        assert (item["model"], item["axes"], item["nodes"]) == known[item["id"]]
    table = tables.experiments(ExperimentSummary.model_validate(item) for item in api.get("/experiments")["items"])
    shown = {str(column.header): list(column.cells) for column in table.columns}
    assert shown["model"] == ["tiny", "custom", "-", "gpt2-124m"]
    assert shown["axes"] == ["-", "threads", "model", "seed, threads, batch"]
    assert shown["nodes"] == ["node-of-w1 node-of-w2", "-", "-", "-"]
