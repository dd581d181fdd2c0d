"""A run that is to be traced: timed first, traced in another attempt, known by its timing whatever tracing does."""

import pytest

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


def test_a_traced_run_is_known_by_its_timing(api, timed, make_result):
    node, run_id = timed
    assert api.get(f"/runs/{run_id}")["state"] == "queued"
    lease = node.claim()
    assert (lease["purpose"], lease["attempt_no"], lease["run_id"]) == ("tracing", 2, run_id)
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


def test_a_run_that_failed_is_not_traced(api):
    experiment = api.submit(base={"model": "tiny", "seq": 16}, trace=True)
    node = api.worker()
    node.upload(node.claim(), error={"slug": "boom"})
    assert [run["state"] for run in api.runs(experiment["id"])] == ["failed"]
    node.claim(status=204)
