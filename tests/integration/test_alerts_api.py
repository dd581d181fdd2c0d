"""Slowdowns: found in histories, measured again, confirmed or dismissed."""

import pytest

from gpt2core.spec.latency import latency
from taskloom.contract.labels import KEPT, build_label
from taskloom.server.read.analysis import analyses
from tests.support.patience import until


def run_all(node, make_result, step_s, core_hash="abc", canary_s=0.02):
    """Execute the queued runs with one version of the core. The median step of each run is the next value of step_s."""
    for s in step_s:
        lease = node.claim()
        environment = {"core_hash": core_hash}
        result = make_result([9, s, s], scheduler=lease["spec"]["scheduler"], environment=environment)
        if canary_s is not None:
            result["canary"] = {"sha256": "c" * 64, "times_s": [canary_s, canary_s]}
        node.upload(lease, result)


NOISE = (1.0, 1.004, 0.996, 1.002, 0.998, 1.006)


@pytest.mark.both_databases
@pytest.mark.parametrize(
    ("canary_s", "cause", "again", "state"),
    [(0.02, "software", 1.1, "confirmed"), (0.02, "software", 1.0, "dismissed"), (None, "unproven", 1.1, "confirmed")],
)
def test_a_regression_is_suspected_confirmed_by_fresh_runs_or_dismissed(
    api, make_result, canary_s, cause, again, state
):
    api.submit(base={"token_slice": 64, "batch_slice": 1}, repetitions=12)
    node = api.worker()
    run_all(node, make_result, NOISE, canary_s=canary_s)
    run_all(node, make_result, [s * 1.1 for s in NOISE], "new", canary_s)
    (series,) = api.get("/analysis/history")["items"]
    (alert,) = series["alerts"]
    assert (alert["change"]["cause"], alert["change"]["differs"]) == (cause, ["core_hash: abc / new"])
    assert (alert["state"], alert["change"]["first_after"], len(series["points"])) == ("suspected", 7, 12)
    made = api.post("/analysis/history/7/confirm", status=201)
    assert (made["runs"], made["request"]["confirms"]) == (6, 7)
    assert api.post("/analysis/history/7/confirm", status=201)["id"] == made["id"]
    assert api.get("/analysis/history")["items"][0]["alerts"][0]["state"] == "confirming"
    run_all(node, make_result, [s * again for s in NOISE], "new", canary_s)
    (alert,) = api.get("/analysis/history", run_id=3)["items"][0]["alerts"]
    assert (alert["state"], alert["confirming_experiment_id"]) == (state, made["id"])


OLD, NEW = "a" * 64, "b" * 64


@pytest.mark.both_databases
@pytest.mark.parametrize(
    ("old_again", "state", "cause"), [(1.0, "confirmed", "software"), (1.1, "dismissed", "environment")]
)
def test_builds_that_a_worker_has_kept_run_in_turn(api, make_result, old_again, state, cause):
    api.submit(base={"token_slice": 64, "batch_slice": 1}, repetitions=12)
    node = api.worker(labels={build_label(OLD): KEPT, build_label(NEW): KEPT})
    run_all(node, make_result, NOISE, OLD)
    run_all(node, make_result, [s * 1.1 for s in NOISE], NEW)
    made = api.post("/analysis/history/7/confirm", status=201)
    assert (made["request"]["builds"], made["runs"]) == ([OLD, NEW], 16)
    assert api.worker("without-builds").claim(204) is None
    blocks = []
    for i in range(16):
        lease = node.claim()
        blocks.append(lease["build"])
        s = (old_again if lease["build"] == OLD else 1.1) * NOISE[i // 2 % 6]
        node.upload(lease, make_result([9, s, s], environment={"core_hash": lease["build"]}))
    assert all({*blocks[i : i + 2]} == {OLD, NEW} for i in range(0, 16, 2))
    assert api.post("/analysis/history/7/confirm", status=201)["id"] == made["id"]
    (series,) = api.get("/analysis/history", run_id=3)["items"]
    (alert,) = series["alerts"]
    assert (alert["state"], alert["change"]["cause"]) == (state, cause)
    assert "old and new build, interleaved" in alert["reason"]


def test_builds_that_no_worker_has_kept_are_not_asked_for(api, make_result):
    api.submit(base={"token_slice": 64, "batch_slice": 1}, repetitions=12)
    node = api.worker(labels={build_label(NEW): KEPT})
    run_all(node, make_result, NOISE, OLD)
    run_all(node, make_result, [s * 1.1 for s in NOISE], NEW)
    assert api.post("/analysis/history/7/confirm", status=201)["request"]["builds"] == []


@pytest.mark.both_databases
def test_what_became_slower_is_run_again_without_being_asked(start_server, make_result):
    api, other = (start_server(confirm_alerts=True, poll_s=0.05) for _ in range(2))
    node = api.worker()

    def run_experiment(level):
        made = api.submit(base={"token_slice": 64, "batch_slice": 1}, repetitions=6)
        run_all(node, make_result, [s * level for s in NOISE], "abc" if level == 1.0 else "new")
        return made["id"]

    def experiments():
        return {each["id"] for each in api.get("/experiments")["items"]}

    known = {run_experiment(1.0), run_experiment(1.0)}
    slower = run_experiment(1.1)
    (confirming,) = until(lambda: experiments() - known - {slower})
    asked = api.get(f"/experiments/{confirming}")
    suspected = asked["request"]["confirms"]
    assert suspected in (12, 13)  # the change according to the ranks
    assert asked["runs"] == 6
    assert other.post(f"/analysis/history/{suspected}/confirm", status=201)["id"] == confirming
    run_all(node, make_result, [s * 1.1 for s in NOISE], "new")
    (alert,) = api.get("/analysis/history", run_id=13)["items"][0]["alerts"]
    assert (alert["state"], alert["confirming_experiment_id"]) == ("confirmed", confirming)
    known = experiments() | {run_experiment(1.1), run_experiment(1.1)}
    until(lambda: searched(api))
    assert experiments() == known


@pytest.mark.both_databases
def test_a_restart_forgets_neither_alerts_nor_what_is_still_to_be_searched(start_server, make_result):
    first = start_server(poll_s=3600)
    node = first.worker()
    for level in (1.0, 1.0, 1.1):
        first.submit(base={"token_slice": 64, "batch_slice": 1}, repetitions=6)
        run_all(node, make_result, [s * level for s in NOISE], "abc" if level == 1.0 else "new")
    assert first.get("/analysis/alerts")["items"] == []

    second = start_server(confirm_alerts=True, poll_s=0.05)
    (alert,) = until(lambda: second.get("/analysis/alerts", state="confirming")["items"])
    assert alert["ratio"] == pytest.approx(1.1, rel=0.01)
    run_all(node, make_result, [s * 1.1 for s in NOISE], "new")
    (confirmed,) = until(lambda: second.get("/analysis/alerts", state="confirmed")["items"])
    assert {**confirmed, "state": "", "reason": "", "changed_at": ""} == {
        **alert, "state": "", "reason": "", "changed_at": "", "ratio": confirmed["ratio"],
    }  # fmt: skip
    assert confirmed["changed_at"] > alert["changed_at"]
    assert first.get("/analysis/alerts")["items"] == [confirmed]


def test_a_key_that_an_owner_chose_is_not_in_the_way_of_a_confirmation(api, make_result):
    api.submit(headers={"Idempotency-Key": "confirm run 7"})
    node = api.worker()
    api.submit(base={"token_slice": 64, "batch_slice": 1}, repetitions=12, priority=1)
    run_all(node, make_result, [s * level for level in (1.0, 1.1) for s in NOISE])
    assert api.post("/analysis/history/7/confirm", status=201)["request"]["confirms"] == 7


def searched(api):
    """Whether every ended experiment has been searched for slowdowns."""
    unsearched = "finished_at IS NOT NULL AND (alerts_at IS NULL OR alerts_at < finished_at)"
    return not api.sql(f"SELECT id FROM experiment WHERE {unsearched}")


def test_where_that_is_not_wanted_what_became_slower_waits_to_be_confirmed(start_server, make_result, monkeypatch):
    api = start_server(poll_s=0.05, analysis_processes=1, analysis_s=600)  # a separate process searches
    node = api.worker()
    for level in (1.0, 1.1):
        api.submit(base={"token_slice": 64, "batch_slice": 1}, repetitions=6)
        run_all(node, make_result, [s * level for s in NOISE])
    until(lambda: searched(api))
    assert [row["state"] for row in api.get("/analysis/alerts")["items"]] == ["suspected"]
    assert len(api.get("/experiments")["items"]) == 2
    found = api.get("/analysis/history")["items"][0]["alerts"][0]
    assert found["state"] == "suspected"
    # The server's own process does not read the inputs of a confirmation either.
    monkeypatch.setattr(analyses, "history", lambda *_: pytest.fail("the server computes"))
    run_id = found["change"]["first_after"]
    for _ in range(2):
        made = api.post(f"/analysis/history/{run_id}/confirm", status=201)
        assert (made["id"], made["request"]["confirms"]) == (3, run_id)
    assert api.get("/analysis/alerts")["items"][0]["state"] == "confirming"


@pytest.mark.both_databases
def test_alerts_have_the_mode_of_their_runs(start_server, make_result):
    api = start_server(poll_s=0.05, analysis_s=600)
    node = api.worker()
    for level, core_hash in ((1.0, "abc"), (1.1, "new")):
        for mode in ("train", "infer"):
            api.submit(base={"token_slice": 64, "batch_slice": 1, "mode": mode}, repetitions=6)
            for noise in NOISE:
                s = noise * level
                result = make_result([9, s, s], mode=mode, environment={"core_hash": core_hash})
                node.upload(node.claim(), of_inference(result) if mode == "infer" else result)
    found = until(lambda: (len(items := api.get("/analysis/alerts")["items"]) == 2 and items) or None)
    assert sorted(each["mode"] for each in found) == ["infer", "train"]
    for each in found:
        assert api.get("/analysis/alerts", mode=each["mode"])["items"] == [each]
        assert api.get("/analysis/alerts", mode=each["mode"], state="dismissed")["items"] == []
        assert api.get(f"/runs/{each['run_id']}")["spec"].get("mode", "train") == each["mode"]
    assert api.get("/analysis/alerts", 422, mode="both")["errors"][0]["field"] == "mode"


def of_inference(result):
    """A result of training as one of inference."""
    times = {name: {phase: result[name][phase] for phase in ("data", "forward")}
             for name in ("phase_s", "phase_busy_s")}  # fmt: skip
    return {
        **result, **times, "losses": [], "weights_sha256": None, "outputs_sha256": "o", "outputs_sketch": [1.0] * 64,
        "latency": latency(result["step_s"][1:]),
    }  # fmt: skip


def test_history_of_an_unknown_run_is_not_found(empty_api):
    assert empty_api.get("/analysis/history", 404, run_id=7)["type"] == "/problems/not-found"
    assert empty_api.post("/analysis/history/7/confirm", status=404)["type"] == "/problems/not-found"
