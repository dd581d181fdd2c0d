"""Repetitions are added until the answer is known or the budget ends, and the reason is recorded."""

import math
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import text

from taskloom.server.queue.experiments import blocks
from tests.support.patience import until

pytestmark = pytest.mark.both_databases

STEP_S = (1.0, 1.01, 1.02, 1.03, 1.04, 1.05, 1.06)  # as few pairs as an interval needs


def submit(api, **stop):
    return api.submit(
        base={"model": "tiny", "token_slice": 64, "batch_slice": 1},
        axes={"scheduler": ["fork-join", "task"]},
        repetitions=3,
        requires={"labels": {"kind": "quiet"}},
        stop={"rel_ci": 0.03, "max_repetitions": 9, **stop},
    )


def run_block(node, make_result, s, ratio=1.0):
    """Execute a block of two runs, in which fork-join takes `ratio` times as long; both claims must succeed."""
    for _ in range(2):
        lease = node.claim()
        scheduler = lease["spec"]["scheduler"]
        step_s = s * ratio if scheduler == "fork-join" else s
        node.upload(lease, make_result([9, step_s, step_s], scheduler=scheduler))


@pytest.fixture
def node(api):
    return api.worker(labels={"kind": "quiet"})


def stopping(api, made):
    shown = api.get(f"/experiments/{made['id']}")
    return shown["state"], shown["runs"], shown["stopping"]


def test_blocks_are_added_until_the_interval_is_narrow_enough(api, node, make_result):
    made = submit(api)
    assert made["stopping"] == {"repetitions": 0, "rel_ci": None, "spent_s": 0.0, "reason": None}
    assert made["runs"] == 6
    for s in STEP_S[:-1]:
        run_block(node, make_result, s, ratio=1 + 0.5 * (s - 1))
    state, runs, shown = stopping(api, made)
    assert (state, runs, shown["repetitions"], shown["rel_ci"], shown["reason"]) == ("active", 14, 6, None, None)
    run_block(node, make_result, STEP_S[-1], ratio=1.03)
    state, runs, shown = stopping(api, made)
    assert (state, runs, shown["repetitions"], shown["reason"]) == ("finished", 14, 7, "narrow-enough")
    assert shown["rel_ci"] == pytest.approx(math.log(1.03) / 2)
    assert shown["spent_s"] > 0
    node.claim(204)
    planned = [(run["block"], run["repetition"], run["position"]) for run in api.runs(made["id"])]
    assert planned == [(i // 2, i // 2 + 1, i) for i in range(14)]


def test_what_is_added_is_what_more_repetitions_would_have_been(api, node, make_result):
    made = submit(api)
    for s in STEP_S:
        run_block(node, make_result, s)
    asked = {**made["request"], "repetitions": 7}
    asked.pop("stop")
    plan = api.post("/experiments?dry_run=true", asked)["order"]
    assert [run["variant"] for run in api.runs(made["id"])] == [run["variant"] for run in plan]


def test_the_largest_number_of_repetitions_ends_it(api, node, make_result):
    made = submit(api, rel_ci=0.0001, max_repetitions=7)
    for i in range(7):
        run_block(node, make_result, 1.0, ratio=1.0 + 0.1 * i)
    state, runs, shown = stopping(api, made)
    assert (state, runs, shown["reason"]) == ("finished", 14, "max-repetitions")


def test_the_budget_ends_it(api, node, make_result):
    made = submit(api, rel_ci=0.0001, budget_s=1e-6)
    for i in range(3):
        run_block(node, make_result, 1.0 + 0.1 * i)
    state, runs, shown = stopping(api, made)
    assert (state, runs, shown["reason"]) == ("finished", 6, "budget")


def test_a_variant_without_any_result_ends_it(api, node, make_result):
    made = submit(api)
    for _ in range(6):
        lease = node.claim()
        if lease["spec"]["scheduler"] == "task":
            node.upload(lease, error={"slug": "boom"})
        else:
            node.upload(lease, make_result([9, 1, 1], scheduler="fork-join"))
    state, runs, shown = stopping(api, made)
    assert (state, runs, shown["reason"]) == ("finished", 6, "no-results")


def test_a_cancelled_experiment_is_not_prolonged(api, node, make_result):
    made = submit(api)
    lease = node.claim()
    api.post(f"/experiments/{made['id']}/cancel")
    node.upload(lease, make_result([9, 1, 1], scheduler=lease["spec"]["scheduler"]))
    assert stopping(api, made)[:2] == ("cancelled", 6)


def test_servers_that_ask_the_rule_at_the_same_moment_add_one_block(api, node, make_result, monkeypatch):
    made = submit(api)
    for s in STEP_S[:2]:
        run_block(node, make_result, s)
    with monkeypatch.context() as patch:
        patch.setattr(blocks, "undecided", lambda _: [])  # the server ends before it evaluates the rule
        run_block(node, make_result, STEP_S[2])
    (ended,) = blocks.undecided(api.context.database)
    with ThreadPoolExecutor(2) as pool:
        added = list(pool.map(lambda _: blocks.decide(api.context.database, ended, None, None), range(2)))
    assert sorted(added) == [False, True]
    assert stopping(api, made)[:2] == ("active", 8)


def test_a_block_that_a_server_did_not_come_to_queue_is_queued_by_the_reaper(api, node, make_result, monkeypatch):
    made = submit(api)
    with monkeypatch.context() as patch:
        patch.setattr(blocks, "undecided", lambda _: [])
        for s in STEP_S[:3]:
            run_block(node, make_result, s)
    assert stopping(api, made)[:2] == ("active", 6)  # another block may follow
    api.reap()
    assert stopping(api, made)[:2] == ("active", 8)


def test_a_run_that_is_tried_again_has_the_rule_asked_again(api, node, make_result):
    made = submit(api)
    for _ in range(6):
        node.upload(node.claim(), error={"slug": "boom"})
    assert stopping(api, made)[2]["reason"] == "no-results"
    api.post(f"/experiments/{made['id']}/retry")
    assert stopping(api, made)[2]["reason"] is None
    for s in STEP_S[:3]:
        run_block(node, make_result, s)
    assert stopping(api, made)[:2] == ("active", 8)


def wait_for_locks(api, waiting):
    """Wait until this number of database sessions waits for a lock."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    until(lambda: api.sql(query)[0][0] >= waiting, f"{waiting} sessions that wait for a lock")


@pytest.mark.on_postgres
def test_a_block_queued_while_the_experiment_is_cancelled_is_cancelled_too(api, node, make_result, monkeypatch):
    made = submit(api)
    with monkeypatch.context() as patch:
        patch.setattr(blocks, "undecided", lambda _: [])
        for s in STEP_S[:3]:
            run_block(node, make_result, s)
    (ended,) = blocks.undecided(api.context.database)
    with ThreadPoolExecutor(2) as pool:
        with api.context.database.write() as session:  # delays the block, and the cancellation behind it
            session.execute(text("SELECT 1 FROM experiment WHERE id = :id FOR UPDATE"), {"id": made["id"]})
            added = pool.submit(blocks.decide, api.context.database, ended, None, None)
            wait_for_locks(api, 1)
            cancelled = pool.submit(api.post, f"/experiments/{made['id']}/cancel")
            wait_for_locks(api, 2)
        assert added.result()
        answer = cancelled.result()
    assert (answer["state"], answer["runs"], answer["by_state"]) == ("cancelled", 8, {"succeeded": 6, "cancelled": 2})


def test_who_cancels_before_the_rule_was_asked_gets_no_other_block(api, node, make_result, monkeypatch):
    made = submit(api)
    with monkeypatch.context() as patch:
        patch.setattr(blocks, "undecided", lambda _: [])
        for s in STEP_S[:3]:
            run_block(node, make_result, s)
        assert api.post(f"/experiments/{made['id']}/cancel")["state"] == "cancelled"
    api.reap()
    assert stopping(api, made)[:2] == ("cancelled", 6)
    assert api.get(f"/experiments/{made['id']}")["finished_at"] is not None


def test_the_first_answer_stays_what_it_was(api, node, make_result):
    asked = {"base": {"model": "tiny"}, "repetitions": 1, "stop": {"rel_ci": 0.5, "max_repetitions": 9}}
    first = api.submit(headers={"Idempotency-Key": "k"}, **asked)
    node.upload(node.claim(), make_result([9, 1, 1], batch_slice=4))
    assert api.get(f"/experiments/{first['id']}")["runs"] == 2
    assert api.submit(headers={"Idempotency-Key": "k"}, **asked) == first


@pytest.mark.parametrize(
    ("request_", "pointer"),
    [
        ({"repetitions": 5, "stop": {"rel_ci": 0.1, "max_repetitions": 4}}, "/stop/max_repetitions"),
        ({"order": "sequential", "stop": {"rel_ci": 0.1}}, "/order"),
        ({"stop": {"rel_ci": 0}}, "/stop/rel_ci"),
        ({"stop": {}}, "/stop/rel_ci"),
    ],
)
def test_what_cannot_be_is_refused(empty_api, request_, pointer):
    assert empty_api.submit(422, **request_)["errors"][0]["pointer"] == pointer
