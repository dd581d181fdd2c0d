import threading
from typing import Any

import pytest
from sqlalchemy.exc import IntegrityError

pytestmark = pytest.mark.both_databases


@pytest.fixture
def node(api):
    return api.worker()


@pytest.fixture
def lease(api, node):
    """The lease of an experiment's only run."""
    api.submit()
    return node.claim()


def states(api, lease):
    run = api.get(f"/runs/{lease['run_id']}")
    return run["state"], [attempt["state"] for attempt in run["history"]]


def test_a_heartbeat_starts_the_run_and_carries_progress(api, node, lease):
    beaten = node.beat(lease, stage="training", step=3, steps=12, loss=4.5, tokens_per_s=100)
    assert beaten["cancel"] is False
    assert beaten["expires_at"] > lease["expires_at"]
    attempt = api.get(f"/attempts/{lease['attempt_id']}")
    assert attempt["progress"] == {"stage": "training", "step": 3, "steps": 12, "loss": 4.5, "tokens_per_s": 100}
    assert states(api, lease) == ("running", ["running"])
    assert api.get("/workers")["items"][0]["current_attempt_id"] == lease["attempt_id"]


def test_a_result_ends_the_run_and_gives_it_figures(api, node, lease, make_result):
    receipt = node.upload(lease, make_result([9, 0.5, 0.5, 0.5], losses=[4, 3, 2, 1]))
    assert receipt == {"attempt_id": lease["attempt_id"], "state": "succeeded", "canonical": True}
    run = api.get(f"/runs/{lease['run_id']}")
    assert (run["state"], run["median_step_s"], run["tokens_per_s"], run["final_loss"]) == ("succeeded", 0.5, 512, 1)
    assert run["finished_at"] is not None
    assert api.get("/workers")["items"][0]["current_attempt_id"] is None


def test_the_same_result_again_is_the_same_answer_and_another_a_conflict(api, node, lease, make_result):
    first = node.upload(lease, make_result())
    assert node.upload(lease, make_result()) == first
    problem = node.upload(lease, make_result([9, 1, 1, 1]), status=409)
    assert problem["type"] == "/problems/result-conflict"
    assert api.sql("SELECT count(*) FROM result") == [(1,)]


def test_a_failure_is_kept_and_not_tried_again(api, node, lease):
    error = {"slug": "not-finite", "detail": "loss is nan", "output": ["last line"]}
    assert node.upload(lease, error=error)["state"] == "failed"
    run = api.get(f"/runs/{lease['run_id']}")
    assert (run["state"], run["error"], run["history"][0]["error"]) == ("failed", error, error)
    node.claim(204)


def test_a_token_that_is_not_the_attempts_is_refused(api, node, lease, make_result):
    stranger = api.worker("w2")
    assert stranger.beat(lease, 409)["type"] == "/problems/wrong-fencing-token"
    assert node.beat({**lease, "attempt_no": 2}, 409)["attempt_no"] == 1
    assert stranger.upload(lease, make_result(), status=409)["type"] == "/problems/wrong-fencing-token"
    assert node.beat({**lease, "attempt_id": 99}, 404)["type"] == "/problems/not-found"
    assert states(api, lease) == ("leased", ["leased"])


def test_a_finished_attempt_takes_no_heartbeat(node, lease, make_result):
    node.upload(lease, make_result())
    problem = node.beat(lease, 409)
    assert problem["type"] == "/problems/invalid-transition"
    assert (problem["current"], problem["allowed"]) == ("succeeded", [])
    assert problem["instance"] == f"/api/v1/attempts/{lease['attempt_id']}/heartbeat"


def test_a_lost_run_goes_to_another_worker_and_the_old_one_hears_of_it(api, node, lease, make_result):
    api.let_lease_run_out(lease["attempt_id"])
    api.sql("UPDATE worker SET seen_at = seen_at - 1000")
    api.reap()
    assert states(api, lease) == ("queued", ["lost"])
    other = api.worker("w2")
    second = other.claim()
    assert (second["run_id"], second["attempt_no"]) == (lease["run_id"], 2)
    assert node.beat(lease, 409)["type"] == "/problems/lease-lost"
    late = node.upload(lease, make_result([9, 1, 1, 1]))
    assert (late["state"], late["canonical"]) == ("superseded", False)
    assert other.upload(second, make_result([9, 2, 2, 2]))["canonical"] is True
    run = api.get(f"/runs/{lease['run_id']}")
    assert (run["median_step_s"], [a["state"] for a in run["history"]]) == (2, ["superseded", "succeeded"])
    assert api.get(f"/runs/{lease['run_id']}/samples")["attempt_no"] == 2


def test_an_expired_lease_that_nobody_took_is_renewed(api, node, lease):
    api.let_lease_run_out(lease["attempt_id"])
    assert node.beat(lease)["cancel"] is False
    api.let_lease_run_out(lease["attempt_id"])
    api.reap()
    assert states(api, lease) == ("queued", ["lost"])
    node.beat(lease)
    assert states(api, lease) == ("running", ["running"])
    assert api.sql("SELECT losses FROM run") == [(0,)]
    assert api.get(f"/attempts/{lease['attempt_id']}")["error"] is None


def test_a_renewal_does_not_take_cores_that_run_another_attempt(api, node, lease):
    api.let_lease_run_out(lease["attempt_id"])
    api.reap()
    high = api.submit(priority=9)
    assert node.claim()["experiment_id"] == high["id"]
    assert node.beat(lease, 409)["type"] == "/problems/lease-lost"


def test_a_renewal_takes_no_core_that_another_worker_uses(api, make_result):
    api.submit()
    left, right = api.worker("w1", node="n", cores=[0, 1]), api.worker("w2", node="n", cores=[1, 2])
    lease = left.claim()
    api.let_lease_run_out(lease["attempt_id"])
    api.reap()
    high = api.submit(priority=9)
    other = right.claim()
    assert other["experiment_id"] == high["id"]
    assert left.beat(lease, 409)["type"] == "/problems/lease-lost"
    right.upload(other, make_result())
    left.beat(lease)


def test_a_late_result_counts_when_nobody_took_the_run(api, node, lease, make_result):
    api.let_lease_run_out(lease["attempt_id"])
    api.reap()
    assert node.upload(lease, make_result()) == {
        "attempt_id": lease["attempt_id"],
        "state": "succeeded",
        "canonical": True,
    }
    assert states(api, lease) == ("succeeded", ["succeeded"])
    node.claim(204)


def test_a_run_is_queued_again_twice_and_then_quarantined(api, node, lease):
    for _ in range(2):
        api.let_lease_run_out(lease["attempt_id"])
        api.reap()
        lease = node.claim()
    assert lease["attempt_no"] == 3
    api.let_lease_run_out(lease["attempt_id"])
    api.reap()
    assert states(api, lease) == ("quarantined", ["lost"] * 3)
    assert api.get(f"/runs/{lease['run_id']}")["error"]["slug"] == "quarantined"
    node.claim(204)
    node.beat(lease)  # it was alive after all
    assert states(api, lease) == ("running", ["lost", "lost", "running"])
    assert api.get(f"/runs/{lease['run_id']}")["error"] is None


def test_leases_that_hold_are_not_reaped(api, lease):
    api.reap()
    assert states(api, lease) == ("leased", ["leased"])


def test_the_server_reaps_by_itself(start_server):
    api = start_server(reap_after_s=0.0, reap_every_s=0.02, lease_s=0.05)
    api.submit()
    node = api.worker()
    lease = node.claim()
    pause = threading.Event()
    while states(api, lease)[0] != "queued":
        pause.wait(0.02)
    assert node.claim()["attempt_no"] == 2


def test_the_deadline_is_enforced_while_beats_arrive(api, node, lease, make_result):
    node.beat(lease)
    api.sql("UPDATE attempt SET deadline_at = claimed_at")
    beaten = node.beat(lease)
    assert (beaten["cancel"], beaten["overdue"]) == (True, True)
    api.reap()
    assert states(api, lease) == ("running", ["running"])  # the worker may still report the outcome
    api.let_deadline_pass(lease["attempt_id"])
    api.reap()
    assert states(api, lease) == ("failed", ["failed"])
    assert api.get(f"/runs/{lease['run_id']}")["error"]["slug"] == "deadline-exceeded"
    assert node.beat(lease, 409)["current"] == "failed"
    assert node.upload(lease, make_result())["state"] == "superseded"
    assert states(api, lease) == ("failed", ["superseded"])


def test_stopping_at_the_deadline_is_a_failure(api, node, lease):
    api.let_deadline_pass(lease["attempt_id"])
    assert node.upload(lease, outcome="cancelled")["state"] == "failed"
    assert api.get(f"/runs/{lease['run_id']}")["error"]["slug"] == "deadline-exceeded"


def test_a_worker_that_leaves_hands_its_run_back(api, node, lease):
    assert node.upload(lease, outcome="cancelled") == {
        "attempt_id": lease["attempt_id"],
        "state": "cancelled",
        "canonical": False,
    }
    assert states(api, lease) == ("queued", ["cancelled"])
    assert node.claim()["attempt_no"] == 2


def test_a_new_process_of_a_worker_loses_what_the_old_one_held(api, node, lease, make_result):
    node.register(200)
    assert states(api, lease) == ("leased", ["leased"])
    node.register(200, boot_id="boot-2")
    assert states(api, lease) == ("queued", ["lost"])
    assert node.beat(lease, status=409)["type"] == "/problems/lease-lost"  # otherwise no process would execute the run
    assert states(api, lease) == ("queued", ["lost"])
    assert node.upload(lease, make_result())["canonical"] is True  # delivered from the spool


def test_damaged_and_malformed_results_are_refused(api, node, lease):
    body = {"worker_id": "w1", "attempt_no": 1, "outcome": "succeeded", "sha256": "0" * 64, "payload": "{}"}
    assert api.put("/attempts/1/result", body, 422)["type"] == "/problems/bad-result"
    assert node.upload(lease, {"schema": "x"}, status=422)["type"] == "/problems/bad-result"
    assert api.put("/attempts/1/result", {**body, "sha256": "x"}, 422)["errors"][0]["pointer"] == "/sha256"
    assert states(api, lease) == ("leased", ["leased"])


@pytest.mark.usefixtures("lease")
def test_the_schema_itself_holds_one_active_attempt_a_run_and_a_core_set(api):
    copy = (
        "INSERT INTO attempt (run_id, attempt_no, worker_id, boot_id, node, core_set, state, claimed_at, expires_at, "
        "deadline_at, finished_at) SELECT {run_id}, attempt_no + 1, worker_id, boot_id, {node}, core_set, '{state}', "
        "claimed_at, expires_at, deadline_at, {finished} FROM attempt"
    )
    api.submit()
    for values in (
        {"run_id": "run_id", "node": "'elsewhere'", "state": "running", "finished": "NULL"},
        {"run_id": "2", "node": "node", "state": "leased", "finished": "NULL"},
        {"run_id": "run_id", "node": "'elsewhere'", "state": "asleep", "finished": "1"},
        {"run_id": "run_id", "node": "'elsewhere'", "state": "lost", "finished": "NULL"},
        {"run_id": "99", "node": "'elsewhere'", "state": "lost", "finished": "1"},
    ):
        with pytest.raises(IntegrityError):
            api.sql(copy.format(**values))
    api.sql(copy.format(run_id="run_id", node="'elsewhere'", state="lost", finished="1"))


@pytest.mark.parametrize(
    "progress", ['{"loss": NaN}', '{"loss": 1e400}', '{"step": 1' + "0" * 400 + "}", '{"step": -1}']
)
def test_progress_is_finite_and_bounded(api, node, lease, progress):
    content = f'{{"worker_id": "w1", "attempt_no": 1, "progress": {progress}}}'
    address = f"/api/v1/attempts/{lease['attempt_id']}/heartbeat"
    answer = api.http.post(address, content=content, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["type"]) == (422, "/problems/invalid-request")
    node.beat(lease, stage="training", loss=4.5)


def test_a_result_that_is_not_whole_or_another_runs_changes_nothing(api, node, lease, make_result):
    whole = node.answering(lease, make_result())
    changes: list[dict[str, Any]] = [
        {"ops": None}, {"threads": None}, {"losses": []}, {"config": {**whole["config"], "batch": 8}}
    ]  # fmt: skip
    for change in changes:
        refusal = node.upload(lease, {**whole, **change}, status=422)
        assert refusal["type"] == "/problems/bad-result"
    assert states(api, lease) == ("leased", ["leased"])
    node.upload(lease, whole)
    assert states(api, lease) == ("succeeded", ["succeeded"])


def test_progress_that_was_taken_before_it_had_bounds_is_left_out(api, node, lease):
    node.beat(lease, stage="training")
    api.sql("UPDATE attempt SET progress = :progress", progress='{"stage": "training", "step": -1}')
    assert api.get(f"/runs/{lease['run_id']}")["history"][0]["progress"] is None
    assert api.get(f"/attempts/{lease['attempt_id']}")["progress"] is None
