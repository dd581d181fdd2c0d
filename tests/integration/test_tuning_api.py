"""A tuning searches, confirms and draws; its blocks are decided by any server, once."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from taskloom.server.queue.experiments import tuning as queue
from taskloom.server.queue.experiments.tuning import Part
from taskloom.server.read.experiments.verdict import verdict as judged
from taskloom.server.read.tuning import search
from tests.support.patience import until
from tests.support.present import present
from tests.support.tunings import (
    BASE,
    SPACE,
    TUNE,
    answer,
    decide,
    open_runs,
    play,
    run_block,
    seconds,
    settings_of,
    submit,
)

pytestmark = pytest.mark.both_databases


@pytest.fixture
def api(start_server):
    """Its loop that decides does nothing within a test; `decide` does."""
    return start_server(poll_s=3600.0)


def test_a_tuning_from_its_submission_to_its_sentence(api, make_result):
    made = submit(api)
    assert made["tuning"] == {"phase": "explore", "runs": 4, "spent_s": 0.0, "reason": None}
    node = api.worker()
    run_block(node, make_result, 4)
    before = api.get(f"/experiments/{made['id']}")
    assert (before["state"], before["tuning"]["phase"]) == ("active", "explore")  # between two blocks
    found = answer(api, made)
    assert [trial["state"] for trial in found["trials"]] == ["measured"] * 3
    assert found["confirmed"] is found["share"] is None
    assert found["sentence"].startswith("Exploring: 3 settings measured; the best so far is ")
    decide(api)
    shown = play(api, node, make_result, made)
    assert (shown["state"], shown["tuning"]["reason"]) == ("finished", "complete")
    found = answer(api, made)
    assert found["space"] == {"valid": 10, "invalid": 0, "excluded": 0, "equal": 2, "combinations": 12}
    best = min((trial for trial in found["trials"]), key=lambda trial: trial["step_s"] / (trial["ratio"] or 1))
    assert found["best"] in [trial["settings"] for trial in found["trials"]]
    assert best["state"] == "measured"
    confirmed, share = found["confirmed"], found["share"]
    wanted = 4.0 / seconds({**BASE, **found["best"]})
    assert confirmed["ratio"] == pytest.approx(wanted)
    assert (confirmed["pairs"], confirmed["verdict"]) == (6, "faster")
    assert confirmed["ratio_low"] <= confirmed["ratio"] <= confirmed["ratio_high"]
    assert share["drawn"] == found["m"] == 4
    assert share["slower"] == found["k"] == sum(draw["state"] == "slower" for draw in found["draws"])
    assert share["at_least"] == found["beats_at_least"] <= found["beats"] == share["slower"] / 4
    assert f"{wanted:.2f} times as fast as the default" in found["sentence"]
    assert found["base"] == {**BASE, **found["best"]}
    assert api.submit(base=found["base"])["runs"] == 1  # the winner is a base
    assert {each["setting"] for each in found["importance"]} <= set(SPACE)
    assert found["spent_runs"] == shown["runs"] == len(api.runs(made["id"]))


def test_a_dry_run_tells_the_size_and_what_can_be_said(empty_api):
    plan = empty_api.post("/experiments?dry_run=true", {"base": BASE, "space": SPACE, "tune": {**TUNE, "fresh": 20}})
    tuning = plan["tuning"]
    assert (tuning["valid"], tuning["equal"], tuning["sampler"], tuning["explore_runs"]) == (10, 2, "tpe", 6)
    assert (tuning["blocks"], tuning["runs"], plan["runs"]) == (2 + 6 + 20, 6 + 2 + 52, 60)
    assert tuning["can_say"] == ["20 fresh draws: at most 86 % of the valid settings"]
    assert plan["estimated_s"] > 0
    assert len(plan["order"]) == 4
    few = {"base": BASE, "space": {"threads": [1, 2]}, "tune": {"confirm": 2, "fresh": 0}}
    small = empty_api.post("/experiments?dry_run=true", few)
    assert small["tuning"]["sampler"] == "grid"
    assert [text.split(":")[0] for text in small["tuning"]["can_say"]] == [
        "96 runs suffice for each of the 2 valid settings 48 times, so the grid is measured instead of a search",
        "no ratio to the default", "no share of the space",
    ]  # fmt: skip
    assert empty_api.get("/experiments")["items"] == []


@pytest.mark.parametrize(
    ("request_", "pointer"),
    [
        ({"tune": {}}, "/space"),
        ({"space": {"threads": [1]}}, "/space"),
        ({"space": {"seed": [1, 2]}, "tune": {}}, "/space/seed"),
        ({"space": {"batch": [1, 2]}, "tune": {}}, "/space/batch"),
        ({"space": {"steps": [1, 2]}, "tune": {}}, "/space/steps"),
        ({"space": {"nothing": [1]}, "tune": {}}, "/space/nothing"),
        ({"space": {"threads": [1, 1]}, "tune": {}}, "/space/threads"),
        ({"space": {"threads": []}, "tune": {}}, "/space/threads"),
        ({"space": {"threads": ["two"]}, "tune": {}}, "/space/threads/0"),
        ({"space": {"batch_slice": [64]}, "tune": {}}, "/space/batch_slice"),
        ({"space": {"threads": [1]}, "tune": {"runs": 0}}, "/tune/runs"),
        ({"space": {"threads": [1]}, "tune": {"sampler": "best"}}, "/tune/sampler"),
        ({"space": {"threads": [1]}, "tune": {}, "stop": {"rel_ci": 0.1}}, "/stop"),
        ({"space": {"threads": [1]}, "tune": {}, "axes": {"sync": ["step"]}}, "/axes"),
        ({"space": {"threads": [1]}, "tune": {}, "repetitions": 3}, "/repetitions"),
        ({"space": {"threads": [1]}, "tune": {}, "order": "sequential"}, "/order"),
        ({"space": {"threads": [1]}, "tune": {}, "exclude": [{"threads": 1}]}, "/exclude"),
    ],
)
def test_what_cannot_be_tuned_is_refused_at_its_field(empty_api, request_, pointer):
    assert empty_api.submit(422, **request_)["errors"][0]["pointer"] == pointer
    refused = empty_api.post("/experiments?dry_run=true", request_, 422)
    assert refused["errors"][0]["pointer"] == pointer


def test_a_space_that_is_too_large_and_threads_that_no_node_has(api):
    values = {"batch_slice": list(range(1, 501)), "token_slice": list(range(1, 501))}
    refused = submit(api, 422, space=values)
    assert (refused["type"], refused["combinations"]) == ("/problems/space-too-large", 250_000)
    api.worker(cores=[0, 1])
    refused = submit(api, 422, space={"threads": [1, 2, 64]})
    assert refused["errors"][0]["pointer"] == "/space/threads/2"


def test_all_planned_runs_count_against_the_queue_limit(start_server):
    api = start_server(poll_s=3600.0, max_queued=20)
    refused = submit(api, 429)
    assert (refused["type"], refused["runs"]) == ("/problems/queue-full", 6 + 2 + 20)
    assert submit(api, tune={"confirm": 2, "fresh": 2})["runs"] == 4


def test_servers_that_decide_at_the_same_moment_add_one_block(api, make_result):
    made = submit(api)
    run_block(api.worker(), make_result, 4)
    (waiting,) = queue.undecided(api.context.database)
    found = search.following(api.context.database, *waiting)
    assert found == search.following(api.context.database, *waiting)
    parts = [Part(part["role"], part["values"]) for part in found["parts"]]
    with ThreadPoolExecutor(2) as pool:
        added = pool.map(lambda _: queue.decide(api.context.database, *waiting, parts, found["reason"]), range(2))
        assert sorted(added) == [False, True]
    assert api.get(f"/experiments/{made['id']}")["runs"] == 8


def test_another_server_computes_the_same_block(start_server, make_result):
    api, other = start_server(poll_s=3600.0), start_server(poll_s=3600.0)
    made = submit(api)
    run_block(api.worker(), make_result, 4)
    waiting = (made["id"], 4)
    assert search.following(api.context.database, *waiting) == search.following(other.context.database, *waiting)
    decide(other)
    assert api.get(f"/experiments/{made['id']}")["runs"] == 8


def test_a_running_server_decides_by_itself(start_server, make_result):
    api = start_server(poll_s=0.05)
    made = submit(api, tune={"confirm": 0, "fresh": 0, "runs": 3})
    run_block(api.worker(), make_result, 4)
    until(lambda: api.get(f"/experiments/{made['id']}")["state"] == "finished", "the end of the tuning")
    found = answer(api, made)
    assert found["missing"] == [
        "a confirmation needs at least 6 pairs; the request has 0",
        "the request has no fresh draws, so the share of the space is unknown",
    ]
    assert "which is not confirmed" in found["sentence"]


def test_all_settings_fail(api, make_result):
    made = submit(api, tune={"runs": 8})
    shown = play(api, api.worker(), make_result, made, fails=lambda spec: spec["scheduler"] == "task" or
                 spec["threads"] == 2)  # fmt: skip
    assert shown["tuning"]["reason"] in ("complete", "no-results")
    made = submit(api, space={"scheduler": ["task"], "threads": [1, 2]}, tune={"runs": 2})
    shown = play(api, api.worker("w2"), make_result, made, fails=lambda spec: spec["scheduler"] == "task")
    assert shown["tuning"]["reason"] == "no-results"
    found = answer(api, made)
    assert found["sentence"] == "No setting has a result."
    assert {(trial["state"], trial["reason"]) for trial in found["trials"]} == {("failed", "it burst")}


def test_settings_with_other_losses_are_out(api, make_result):
    made = submit(api, space={"scheduler": ["fork-join", "task"], "threads": [2]}, tune={"runs": 2, "fresh": 0})
    node = api.worker()
    for _ in range(3):
        lease = node.claim()
        spec = lease["spec"]
        losses = [5.0, 4.0, 3.0] if spec["scheduler"] == "task" else None
        s = seconds(spec)
        node.upload(lease, make_result([9, s, s], losses=losses, **settings_of(spec)))
    (out,) = [trial for trial in answer(api, made)["trials"] if trial["settings"]["scheduler"] == "task"]
    assert out["state"] == "disagrees"
    assert "losses disagree from step 1" in out["reason"]
    assert answer(api, made)["best"]["scheduler"] == "fork-join"


def test_a_space_of_one_setting_that_is_the_default(api, make_result):
    made = submit(api, space={"threads": [1]}, tune={"runs": 1, "fresh": 2})
    shown = play(api, api.worker(), make_result, made)
    assert shown["tuning"]["reason"] == "complete"
    found = answer(api, made)
    assert found["confirmed"]["verdict"] == "same"
    assert (found["share"]["slower"], found["share"]["at_least"]) == (0, 0.0)
    assert {draw["state"] for draw in found["draws"]} == {"equal"}


@pytest.mark.parametrize("blocks", [3, *(pytest.param(each, marks=pytest.mark.on_sqlite) for each in (1, 9))])
def test_cancelled_in_each_phase_and_tried_again(api, make_result, blocks):
    made = submit(api)
    node = api.worker()
    for _ in range(blocks):
        run_block(node, make_result, open_runs(api, made))
        decide(api)
    phase = api.get(f"/experiments/{made['id']}")["tuning"]["phase"]
    assert phase == {1: "explore", 3: "confirm", 9: "fresh"}[blocks]
    cancelled = api.post(f"/experiments/{made['id']}/cancel")
    assert (cancelled["state"], cancelled["tuning"]["phase"]) == ("cancelled", "ended")
    decide(api)
    assert open_runs(api, made) == 0
    found = answer(api, made)
    assert found["phase"] == "ended"
    assert found["missing"]
    api.post(f"/experiments/{made['id']}/retry")
    assert play(api, node, make_result, made)["tuning"]["reason"] == "complete"
    found = answer(api, made)
    assert (found["confirmed"]["pairs"], found["share"]["drawn"]) == (6, 4)


def test_a_lost_worker_costs_a_run_no_second_trial(api, make_result):
    made = submit(api)
    node = api.worker()
    lost = node.claim()
    api.let_lease_run_out(lost["attempt_id"])
    api.reap()
    run_block(node, make_result, 4)
    decide(api)
    trials = answer(api, made)["trials"]
    assert len(trials) == 6
    assert len({str(trial["settings"]) for trial in trials}) == 6


def test_a_budget_that_ends_in_the_confirmation_says_what_is_missing(api, make_result):
    made = submit(api, tune={"runs": 3, "budget_s": 1e5})
    node = api.worker()
    for _ in range(3):
        run_block(node, make_result, open_runs(api, made))
        decide(api)
    api.sql("UPDATE attempt SET claimed_at = claimed_at - 50000")
    run_block(node, make_result, 2)
    decide(api)
    shown = api.get(f"/experiments/{made['id']}")
    assert (shown["state"], shown["tuning"]["reason"]) == ("finished", "budget")
    found = answer(api, made)
    assert found["confirmed"] is found["share"] is None
    assert found["missing"] == [
        "3 of 6 pairs of the confirmation have results; a ratio needs 6",
        "the tuning ended before the fresh draws, so the share of the space is unknown",
    ]
    assert found["missing"][0] in found["sentence"]


@pytest.fixture
def receiver():
    """A receiver of webhooks that stores the bodies."""
    bodies = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/", bodies
        server.shutdown()


def test_the_verdict_of_a_tuning_is_its_sentence_and_webhooks_hear_of_it(start_server, make_result, receiver):
    url, bodies = receiver
    api = start_server(poll_s=0.05, keep_verdicts=True, webhook_targets=url)
    api.post("/webhooks", {"url": url, "events": ["tuning.confirmed"]}, 201)
    made = submit(api, tune={"runs": 3, "confirm": 6, "fresh": 1})
    node = api.worker()

    def verdict():
        return api.get(f"/experiments/{made['id']}")["verdict"]

    while verdict() is None:
        until(lambda: open_runs(api, made) or verdict(), "the next block, or the verdict")
        run_block(node, make_result, open_runs(api, made))
    found, shown = answer(api, made), verdict()
    assert shown["sentence"] == found["sentence"]
    assert (shown["a"], shown["verdict"], shown["ratio"]) == ("default", "faster", found["confirmed"]["ratio"])
    until(lambda: bodies, "the message")
    (body,) = bodies
    assert (body["event"], body["experiment"]["id"], body["best"]) == ("tuning.confirmed", made["id"], found["best"])
    assert (body["ratio"], body["beats_at_least"]) == (found["confirmed"]["ratio"], found["beats_at_least"])
    assert body["sentence"] == found["sentence"]
    lines = api.http.get("/api/v1/exports/tuning_trials", params={"format": "ndjson"}).text.splitlines()
    rows = [json.loads(line) for line in lines]
    assert [(row["run_id"], row["ratio"]) for row in rows] == [(t["run_id"], t["ratio"]) for t in found["trials"]]
    metrics = api.http.get("/metrics").text
    assert 'taskloom_tunings_ended_total{reason="complete"} 1.0' in metrics
    assert 'taskloom_tuning_blocks_total{phase="confirm"} 6.0' in metrics
    (kept,) = api.get("/tuned")["items"]
    assert (kept["experiment_id"], kept["settings"], kept["sentence"]) == (made["id"], found["best"], found["sentence"])
    assert (kept["ratio"], kept["beats_at_least"]) == (found["confirmed"]["ratio"], found["beats_at_least"])
    assert (kept["problem"]["seq"], kept["node"]) == (64, kept["machine"]["node"])
    assert kept["changed"] == []
    again = api.submit(base=BASE, requires={"cores": 1})  # the node's newest result has another fingerprint
    run_block(node, partial(make_result, environment={"turbo": "changed", "kernel": "6.99"}), 1)
    assert api.get(f"/experiments/{again['id']}")["state"] == "finished"
    assert [each["changed"] for each in api.get("/tuned")["items"]] == [["turbo"]]
    same, other = ({**BASE, "scheduler": "task"}, {**BASE, "seq": 96})
    assert len(api.get("/tuned", base=json.dumps(same))["items"]) == 1  # the schedule is not the problem
    assert api.get("/tuned", base=json.dumps(other))["items"] == []
    assert api.get("/tuned", 422, base="[]")["errors"][0]["pointer"] == "#query/base"
    assert api.get("/tuned", 422, base='{"seq": 0}')["errors"][0]["field"] == "seq"


@pytest.mark.on_sqlite
def test_disturbed_runs_are_said_first_wherever_the_sentence_is(api, make_result):
    """Of the 4 + 12 + 2 runs only those of the confirmation are disturbed, from which the ratio comes."""
    made = submit(api, tune={"runs": 3, "fresh": 1})
    node = api.worker()
    while (phase := api.get(f"/experiments/{made['id']}")["tuning"]["phase"]) != "ended":
        run_block(node, make_result, open_runs(api, made), disturbed=phase == "confirm")
        decide(api)
    found = answer(api, made)
    first = "Most runs of the confirmation were disturbed (12 of 12). "
    assert found["sentence"].startswith(first)
    assert (found["disturbed_runs"], found["confirmed"]["disturbed_runs"]) == (12, 12)
    assert [trial["flagged"] for trial in found["trials"]] == [False] * 3
    shown = judged(api.context.database, made["id"])
    assert (shown.sentence, shown.disturbed_runs, shown.runs) == (found["sentence"], 12, 12)
    assert present(search.kept(api.context.database, made["id"]))["sentence"] == found["sentence"]
