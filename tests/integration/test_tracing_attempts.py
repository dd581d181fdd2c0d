"""A traced run is timed first and traced in another attempt. Its result is that of the timing, however tracing ends."""

import gzip
import json

import pytest

from tests.support.trace_example import FOUND

pytestmark = pytest.mark.both_databases


@pytest.fixture
def timed(api, make_result):
    """(worker, run id) after the timing attempt succeeded."""
    experiment = api.submit(base={"model": "tiny", "seq": 16}, trace=True)
    (run,) = api.runs(experiment["id"])
    node = api.worker()
    lease = node.claim()
    assert lease["purpose"] == "timing"
    receipt = node.upload(lease, make_result([0.9, 0.2, 0.2]))
    assert receipt["canonical"]
    assert receipt["state"] == "succeeded"
    return node, run["id"]


def check_timed(api, run):
    """The timing result is served and analysed, however the tracing ends."""
    assert api.get(f"/runs/{run['id']}/result")["step_s"] == [0.9, 0.2, 0.2]
    assert api.get(f"/runs/{run['id']}/samples")["attempt_no"] == 1
    for selection in (str(run["id"]), f"experiment_id={run['experiment_id']}"):
        (samples,) = api.get("/samples", runs=selection)["items"]
        assert samples["attempt_no"] == 1
    (row,) = api.get("/analysis/scaling", experiment_id=run["experiment_id"])["rows"]
    assert row["step_s"]["median"] == pytest.approx(0.2)


def test_a_traced_run_is_known_by_its_timing(api, timed, make_result):
    node, run_id = timed
    run = api.get(f"/runs/{run_id}")
    assert run["state"] == "queued"
    check_timed(api, run)
    lease = node.claim()
    assert (lease["purpose"], lease["attempt_no"], lease["run_id"]) == ("tracing", 2, run_id)
    check_timed(api, run)
    assert "trace" not in lease["spec"] or lease["spec"]["trace"] is None
    node.beat(lease, stage="training")
    node.leave(lease, "trace.json.gz", b"trace", "application/gzip")
    receipt = node.upload(lease, make_result([9.0, 9.0, 9.0]))
    assert not receipt["canonical"]
    run = api.get(f"/runs/{run_id}")
    assert run["state"] == "succeeded"
    assert run["median_step_s"] == pytest.approx(0.2)
    assert [(a["purpose"], a["state"]) for a in run["history"]] == [("timing", "succeeded"), ("tracing", "succeeded")]
    assert api.get(f"/runs/{run_id}/result")["step_s"] == [0.9, 0.2, 0.2]
    (left,) = api.get(f"/runs/{run_id}/artifacts")["items"]
    assert (left["name"], left["attempt_no"]) == ("trace.json.gz", 2)
    assert [run["traced"] for run in api.get("/runs")["items"]] == [True]
    node.claim(status=204)


def test_tracing_that_fails_leaves_the_run_succeeded(api, timed):
    node, run_id = timed
    node.upload(node.claim(), error={"slug": "exit-status", "detail": "no"})
    run = api.get(f"/runs/{run_id}")
    assert (run["state"], run["error"]) == ("succeeded", None)
    assert run["history"][1]["error"]["slug"] == "exit-status"
    assert api.get(f"/runs/{run_id}/samples")["attempt_no"] == 1


def test_tracing_past_its_deadline_leaves_the_run_succeeded(api, timed):
    node, run_id = timed
    lease = node.claim()
    api.let_deadline_pass(lease["attempt_id"])
    api.reap()
    run = api.get(f"/runs/{run_id}")
    assert (run["state"], run["error"]) == ("succeeded", None)
    assert run["history"][1]["error"]["slug"] == "deadline-exceeded"


def test_a_lost_tracing_attempt_is_tried_again_and_then_given_up(api, timed):
    node, run_id = timed
    for _ in range(3):
        lease = node.claim()
        assert lease["purpose"] == "tracing"
        api.let_lease_run_out(lease["attempt_id"])
        api.reap()
    assert api.get(f"/runs/{run_id}")["state"] == "succeeded"
    node.claim(status=204)


@pytest.mark.parametrize("under_way", [False, True])
def test_cancelling_a_run_that_is_traced_cancels_the_tracing(api, timed, under_way):
    node, run_id = timed
    lease = node.claim() if under_way else None
    api.post(f"/runs/{run_id}/cancel")
    if lease is not None:
        assert node.beat(lease)["cancel"]
        node.upload(lease, error={"slug": "cancelled"}, outcome="cancelled")
    assert api.get(f"/runs/{run_id}")["state"] == "succeeded"
    assert api.get(f"/runs/{run_id}/samples")["attempt_no"] == 1


RIGHT = gzip.compress(json.dumps(FOUND).encode())


@pytest.mark.parametrize(
    "content",
    [
        RIGHT,
        b"trace",
        gzip.compress(b"[]", mtime=0),
        gzip.compress(b" " * (65 << 20)),  # a small file that unpacks to a large one
        gzip.compress(b'{"schema": [' + b"[]," * 9_000_000 + b"[]]}"),
        gzip.compress(b"[" * 100_000),
        RIGHT[:-9],
    ],
    ids=["right", "no gzip", "no object", "long", "many values", "deep", "cut off"],
)
def test_the_report_shows_the_trace_or_says_what_is_wrong_with_it(api, timed, content):
    node, run_id = timed
    lease = node.claim()
    node.leave(lease, "trace.json.gz", content, "application/gzip")
    asked = api.get(f"/runs/{run_id}")["experiment_id"]
    document = api.get("/analysis/report", experiment_id=asked)
    page = api.http.get(f"/reports/{asked}").text
    wrong = [mark for mark in document["marks"] if f"trace.json.gz of run {run_id} cannot be read" in mark]
    assert ([row["run_id"] for row in document["traced"]], len(wrong)) in (([run_id], 0), ([], 1))
    assert bool(wrong) == (content is not RIGHT)
    assert ("Timeline as traced" in page) == bool(document["traced"])


def test_only_the_first_repetition_is_traced_where_that_is_asked_for(api, make_result):
    experiment = api.submit(base={"model": "tiny", "seq": 16}, axes={"seed": [1, 2]}, repetitions=2, trace="first")
    node = api.worker()
    for _ in range(6):
        lease = node.claim()
        node.upload(lease, make_result([0.9, 0.2, 0.2], seed=lease["spec"]["seed"]))
    node.claim(status=204)
    executed = [(r["repetition"], r["attempts"]) for r in api.runs(experiment["id"])]
    assert executed == [(1, 2), (1, 2), (2, 1), (2, 1)]


def test_a_run_that_failed_is_not_traced(api):
    experiment = api.submit(base={"model": "tiny", "seq": 16}, trace=True)
    node = api.worker()
    node.upload(node.claim(), error={"slug": "boom"})
    assert [run["state"] for run in api.runs(experiment["id"])] == ["failed"]
    node.claim(status=204)
