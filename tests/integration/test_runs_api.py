from typing import Any

import pytest

pytestmark = pytest.mark.both_databases


def test_runs_are_filtered_and_paged(api, make_result):
    first = api.submit(axes={"seed": [1, 2, 3]})["id"]
    api.submit(axes={"seed": [1, 2]})
    node = api.worker()
    node.upload(node.claim(), make_result())
    assert len(api.get("/runs")["items"]) == 5
    assert len(api.get("/runs", experiment_id=first)["items"]) == 3
    assert len(api.get("/runs", experiment_id=first, state="queued")["items"]) == 2
    assert len(api.get("/runs", state=["queued", "succeeded"])["items"]) == 5
    found: list[Any] = []
    cursor: dict[str, Any] | None = {}
    pages = 0
    while cursor is not None:
        page = api.get("/runs", limit=2, **cursor)
        found += [run["id"] for run in page["items"]]
        cursor = {"cursor": page["next_cursor"]} if page["next_cursor"] else None
        pages += 1
    assert (found, pages) == ([1, 2, 3, 4, 5], 3)


SPENT = [{"starting_s": 1.0, "timed_s": 3.0}, {"claiming_s": 2.0, "starting_s": 0.5, "timed_s": 4.0}]


def upload_spent(node, result, spent):
    """Claim a run, upload a result whose trainer reports where the time went, and return the run's id."""
    lease = node.claim()
    node.upload(lease, {**result, "node_time": spent} if spent else result)
    return lease["run_id"]


def test_runs_experiments_and_reports_say_where_their_nodes_time_went(api, make_result):
    experiment, node = api.submit(axes={"seed": [1, 2, 3]})["id"], api.worker()
    nothing = {"node_time": None, "node_time_missing": "there is no result"}
    assert api.get(f"/experiments/{experiment}").items() >= nothing.items()
    assert api.get(f"/runs/{api.runs(experiment)[0]['id']}").items() >= nothing.items()
    api.sql("UPDATE run SET queued_at = queued_at - 100")
    for spent in SPENT:
        found = api.get(f"/runs/{upload_spent(node, make_result(), spent)}")
        assert (found["node_time"], found["node_time_missing"]) == (spent, None)
    summed = {"claiming_s": 2.0, "starting_s": 1.5, "timed_s": 7.0}
    found = api.get(f"/experiments/{experiment}")
    assert (list(found["node_time"].items()), found["node_time_missing"]) == (list(summed.items()), None)
    old = upload_spent(node, make_result(), None)
    assert api.get(f"/runs/{old}")["node_time_missing"] == "its trainer does not report it"
    missing = "the trainers of 1 of 3 results do not report it"
    document = api.get("/analysis/report", experiment_id=experiment)["experiment"]
    for found in (api.get(f"/experiments/{experiment}"), document):
        assert (found["node_time"], found["node_time_missing"]) == (summed, missing)
    page = api.http.get(f"/reports/{experiment}").text
    assert "Node time 10.5 s, of which timed steps 67% (waiting for a claim 19%, starting 14%)." in page
    assert f"Incomplete: {missing}." in page


def test_a_node_that_waits_for_work_is_idle(api, make_result):
    api.submit()
    waited = upload_spent(api.worker(), make_result(), {"claiming_s": 5000.0, "timed_s": 1.0})
    found = api.get(f"/runs/{waited}")["node_time"]
    assert (found["claiming_s"] < 1000, found["timed_s"]) == (True, 1.0)
    assert api.get(f"/runs/{waited}/result")["node_time"]["claiming_s"] == 5000.0


def test_lists_are_thin(api):
    api.submit()
    item = api.get("/runs")["items"][0]
    assert not {"spec", "history"} & set(item)


@pytest.mark.parametrize(
    ("path", "query", "kind"),
    [
        ("/runs", {"state": "asleep"}, "invalid-request"),
        ("/runs", {"experiment_id": 0}, "invalid-request"),
        ("/runs", {"experiment_id": 10**30}, "invalid-request"),
        ("/runs", {"limit": 0}, "invalid-request"),
        ("/runs", {"limit": 501}, "page-too-large"),
        ("/runs", {"cursor": "nonsense"}, "bad-cursor"),
        ("/experiments", {"limit": 501}, "page-too-large"),
        ("/experiments", {"cursor": "nonsense"}, "bad-cursor"),
        ("/workers", {"limit": 501}, "page-too-large"),
        ("/workers", {"cursor": "nonsense"}, "bad-cursor"),
        ("/runs/0", {}, "invalid-request"),
        (f"/runs/{10**30}", {}, "invalid-request"),
        ("/runs/x", {}, "invalid-request"),
    ],
)
def test_bad_queries_have_their_problem(empty_api, path, query, kind):
    assert empty_api.get(path, 422, **query)["type"] == f"/problems/{kind}"


def test_a_parameter_that_there_is_not_is_named(empty_api):
    problem = empty_api.get("/runs", 422, sate="failed", limit=5)
    accepted = (
        "an existing parameter: sort, total, cursor, limit, experiment_id, run, state, node, label, flagged, "
        "since, until, finished_since, finished_until, filter, commit, branch, dirty, version, trainer_commit, "
        "trainer_branch, trainer_dirty, trainer_version"
    )
    assert problem["errors"] == [{"pointer": "#query/sate", "field": "sate", "value": "failed", "accepted": accepted}]
    assert empty_api.post("/experiments?dry-run=true", {}, 422)["errors"][0]["field"] == "dry-run"
    assert empty_api.sql("SELECT count(*) FROM experiment") == [(0,)]


@pytest.mark.parametrize(
    ("path", "wrong"),
    [
        ("/runs", {"since": "soon", "label": "x", "filter": "nothing = 3", "limit": "many", "sate": "failed",
                   "state": "gone", "trainer_dirty": "x", "sort": "size"}),
        ("/experiments", {"until": "2026-01-01", "label": "x", "filter": "name ~", "total": "maybe", "tags": "a"}),
        ("/analysis/history/series", {"filter": "nothing = 3", "alert": "red", "run_id": "0", "since": "1d"}),
        ("/analysis/history/series/1/points", {"finished_since": "x", "finished_until": "y", "sort": "z", "o": "q"}),
        ("/exports/runs", {"columns": "nothing", "format": "xlsx", "filter": "(", "since": "soon", "bogus": "1"}),
        ("/tuned", {"base": "[]", "limit": "0", "bogus": "1"}),
    ],
)  # fmt: skip
def test_every_parameter_that_is_not_accepted_is_named_at_once(empty_api, path, wrong):
    errors = empty_api.get(path, 422, **wrong)["errors"]
    assert sorted(each["field"] for each in errors) == sorted(wrong)
    assert all(each["value"] == wrong[each["field"]] for each in errors if each["field"] not in ("label", "state"))
    assert not any(each["accepted"].startswith("Value error") for each in errors)


def test_an_experiment_that_does_not_exist_has_no_runs(empty_api):
    assert empty_api.get("/runs", experiment_id=7)["items"] == []


def test_samples_and_the_raw_result_are_what_was_uploaded(api, make_result):
    api.submit()
    node = api.worker()
    lease = node.claim()
    result = node.answering(lease, make_result([9.0, 0.5, 0.25], losses=[3, 2, 1]))
    node.upload(lease, result)
    assert api.get(f"/runs/{lease['run_id']}/result") == result
    samples = api.get(f"/runs/{lease['run_id']}/samples")
    assert (samples["run_id"], samples["attempt_no"]) == (lease["run_id"], 1)
    assert [(s["step"], s["warmup"], s["loss"], s["step_s"]) for s in samples["items"]] == [
        (0, True, 3, 9.0),
        (1, False, 2, 0.5),
        (2, False, 1, 0.25),
    ]
    assert samples["items"][1]["phase_s"]["backward"] == 0.25


@pytest.mark.parametrize("what", ["samples", "result"])
def test_a_run_without_a_result_says_how_it_is(api, what):
    api.submit()
    problem = api.get(f"/runs/1/{what}", 404)
    assert (problem["type"], problem["current"]) == ("/problems/no-result", "queued")
    node = api.worker()
    node.upload(node.claim(), error={"slug": "boom"})
    assert api.get(f"/runs/1/{what}", 404)["error"] == {"slug": "boom"}
    assert api.get(f"/runs/2/{what}", 404)["type"] == "/problems/not-found"


def test_a_queued_run_is_cancelled_at_once_and_again(api):
    api.submit()
    assert api.post("/runs/1/cancel")["state"] == "cancelled"
    assert api.post("/runs/1/cancel")["state"] == "cancelled"
    api.worker().claim(204)


def test_a_running_run_is_cancelled_by_the_answer_to_a_heartbeat(api):
    api.submit()
    node = api.worker()
    lease = node.claim()
    assert node.beat(lease)["cancel"] is False
    assert api.post("/runs/1/cancel")["state"] == "running"
    beaten = node.beat(lease)
    assert (beaten["cancel"], beaten["overdue"]) == (True, False)
    assert node.upload(lease, outcome="cancelled")["state"] == "cancelled"
    assert api.get("/runs/1")["state"] == "cancelled"
    node.claim(204)


def test_a_cancelled_run_whose_worker_vanishes_is_not_queued_again(api):
    api.submit()
    lease = api.worker().claim()
    api.post("/runs/1/cancel")
    api.let_lease_run_out(lease["attempt_id"])
    api.reap()
    assert api.get("/runs/1")["state"] == "cancelled"


def test_a_run_that_ended_before_it_heard_of_its_cancellation_has_succeeded(api, make_result):
    api.submit()
    node = api.worker()
    lease = node.claim()
    api.post("/runs/1/cancel")
    assert node.upload(lease, make_result())["canonical"] is True
    assert api.get("/runs/1")["state"] == "succeeded"
    problem = api.post("/runs/1/cancel", status=409)
    assert (problem["type"], problem["current"], problem["allowed"]) == (
        "/problems/invalid-transition",
        "succeeded",
        [],
    )


def test_a_failed_run_is_retried_and_keeps_its_history(api, make_result):
    api.submit()
    node = api.worker()
    node.upload(node.claim(), error={"slug": "boom"})
    again = api.post("/runs/1/retry")
    assert (again["state"], again["error"], again["finished_at"]) == ("queued", None, None)
    lease = node.claim()
    assert lease["attempt_no"] == 2
    node.upload(lease, make_result())
    run = api.get("/runs/1")
    assert (run["state"], [a["state"] for a in run["history"]]) == ("succeeded", ["failed", "succeeded"])
    assert api.get("/runs/1/samples")["attempt_no"] == 2
    assert api.sql("SELECT count(*) FROM result") == [(2,)]


def test_a_cancelled_run_that_is_retried_is_no_longer_to_be_cancelled(api):
    api.submit()
    node = api.worker()
    lease = node.claim()
    api.post("/runs/1/cancel")
    node.upload(lease, outcome="cancelled")
    api.post("/runs/1/retry")
    assert node.beat(node.claim())["cancel"] is False


@pytest.mark.parametrize("state", ["queued", "leased", "running", "succeeded"])
def test_only_what_ended_badly_is_retried(api, make_result, state):
    api.submit()
    node = api.worker()
    if state != "queued":
        lease = node.claim()
    if state == "running":
        node.beat(lease)
    if state == "succeeded":
        node.upload(lease, make_result())
    problem = api.post("/runs/1/retry", status=409)
    assert (problem["type"], problem["current"]) == ("/problems/invalid-transition", state)


def test_unknown_runs_are_not_found(empty_api):
    for method, path in (("get", "/runs/7"), ("post", "/runs/7/cancel"), ("post", "/runs/7/retry")):
        assert getattr(empty_api, method)(path, status=404)["type"] == "/problems/not-found"


def test_a_run_goes_to_a_node_that_has_its_openmp_runtime(api):
    """The run waits while no node is known. Later, runtimes that no node has are refused. A block waits for a node that
    has all its runtimes."""

    def waits_for(experiment):
        return api.get(f"/runs/{api.runs(experiment)[0]['id']}")["queue"]["reason"]

    asked = {"base": {"scheduler": "omp-task"}, "axes": {"runtime": ["libgomp", "libomp"]}}
    both, any_at_all = api.submit(**asked)["id"], api.submit(base={"scheduler": "omp-for"})["id"]
    plain = api.worker("plain")
    assert (waits_for(both), waits_for(any_at_all)) == ("no-runtime", "no-runtime")
    plain.claim(status=204)
    assert api.submit(422, **asked)["errors"][0]["pointer"].startswith("/axes/runtime")
    half = api.worker("half", labels={"runtime-auto": "installed", "runtime-libgomp": "installed"}, cores=[2, 3])
    assert waits_for(both) == "no-runtime"
    assert half.claim()["run_id"] == api.runs(any_at_all)[0]["id"]
    full = {f"runtime-{name}": "installed" for name in ("auto", "libgomp", "libomp")}
    assert api.worker("full", labels=full, cores=[4, 5]).claim()["run_id"] in {run["id"] for run in api.runs(both)}


def test_several_ranks_go_to_a_node_with_an_mpi_library_and_enough_cores(api):
    """They wait while no node is known. Later, they are refused unless a node has a library and as many cores."""
    ranked = {"base": {"batch": 4, "threads": 1}, "axes": {"ranks": [1, 2]}}
    experiment = api.submit(**ranked)["id"]
    plain = api.worker("plain", cores=[0, 1])
    queue = api.get(f"/runs/{api.runs(experiment)[0]['id']}")["queue"]
    assert queue["reason"] == "no-label"
    assert queue["waiting_for"] == "no worker has an MPI library, which several ranks need (taskloom[mpi])"
    plain.claim(status=204)
    (error,) = api.submit(422, **ranked)["errors"]
    assert (error["pointer"], error["accepted"]) == (
        "/axes/ranks/1", "1, since no known node has an MPI library (taskloom[mpi])")  # fmt: skip
    assert api.worker("narrow", labels={"mpi": "installed"}, cores=[2]).claim(status=204) is None
    assert api.worker("full", labels={"mpi": "installed"}, cores=[3, 4]).claim()["run_id"] in {
        run["id"] for run in api.runs(experiment)
    }


def test_a_queued_run_says_where_it_stands_and_what_it_waits_for(api, make_result):
    def queue(run_id):
        found = api.get(f"/runs/{run_id}")["queue"]
        return found and (found["position"], found["reason"])

    low = api.submit(priority=-1, axes={"seed": [1, 2]}, order="sequential")["id"]
    first, second = (run["id"] for run in api.runs(low))
    assert (queue(first), queue(second)) == ((1, "no-worker"), (2, "no-worker"))
    urgent = api.runs(api.submit(priority=1, requires={"labels": {"arch": "gpu"}})["id"])[0]["id"]
    assert (queue(urgent), queue(first), queue(second)) == ((1, "no-worker"), (2, "no-worker"), (3, "no-worker"))
    node = api.worker(labels={"disk": "fast"})
    assert queue(urgent) == (1, "no-label")
    assert "arch=gpu" in api.get(f"/runs/{urgent}")["queue"]["waiting_for"]
    assert queue(first) == (2, "runs-before")
    lease = node.claim()
    assert lease["run_id"] == first  # the other one fits no worker
    assert queue(first) is None
    assert queue(second) == (2, "all-busy")
    node.upload(lease, make_result())
    api.post(f"/runs/{urgent}/cancel")
    assert queue(urgent) is None
    assert queue(second) == (1, "next")
    api.sql("UPDATE worker SET seen_at = seen_at - 1000")
    assert queue(second) == (1, "no-worker")
    api.post(f"/runs/{second}/cancel")
    assert api.post(f"/runs/{second}/retry")["queue"]["position"] == 1


def test_a_run_tells_what_its_rate_counts(api):
    api.submit(base={"model": "resnet14-cifar", "batch": 2})
    api.submit()
    assert {run["experiment_id"]: run["unit"] for run in api.get("/runs")["items"]} == {1: "images", 2: "tokens"}
    assert api.get("/runs/1")["unit"] == "images"
