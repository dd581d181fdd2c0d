import gzip
import html
import json
import math
import re

import pytest
from patience import until

from taskloom.contract.experiments import KEPT, build_label


@pytest.fixture
def measured(api, make_result):
    """Six repetitions of fork-join and task on one and two threads, all done."""
    axes = {"scheduler": ["fork-join", "task"], "threads": [1, 2]}
    made = api.submit(base={"token_slice": 64, "batch_slice": 1}, axes=axes, repetitions=6)
    node = api.worker()
    step_s = {("fork-join", 1): 1.0, ("fork-join", 2): 0.8, ("task", 1): 1.0, ("task", 2): 0.5}
    for i in range(made["runs"]):
        lease = node.claim()
        spec = lease["spec"]
        s = step_s[spec["scheduler"], spec["threads"]] * (1 + 0.001 * (i // 4))
        node.upload(lease, make_result([9, s, s], scheduler=spec["scheduler"], threads=spec["threads"]))
    return made["id"]


def test_scaling_has_a_row_for_each_variant(api, measured):
    table = api.get("/analysis/scaling", experiment_id=measured)
    assert table["experiment_id"] == measured
    rows = {(row["scheduler"], row["threads"]): row for row in table["rows"]}
    assert set(rows) == {("fork-join", 1), ("fork-join", 2), ("task", 1), ("task", 2)}
    best = rows["task", 2]
    assert (best["runs"], best["step_s"]["processes"], best["step_s"]["n"], best["step_s"]["over"]) == (
        6,
        6,
        6,
        "processes",
    )
    assert best["speedup"] == pytest.approx(2)
    assert best["efficiency_forward"] == pytest.approx(1)
    assert best["speedup_backward_low"] <= best["speedup_backward"] <= best["speedup_backward_high"]
    assert 0 < best["step_s"]["cv"] < 0.01
    assert best["step_s"]["q1"] <= best["step_s"]["median"] <= best["step_s"]["q3"]
    assert best["variant"] == {"scheduler": "task", "threads": 2}
    assert best["agrees"] is True
    assert table["warnings"] == []


def test_scaling_of_what_has_not_finished_says_so(api):
    made = api.submit(repetitions=2)
    table = api.get("/analysis/scaling", experiment_id=made["id"])
    assert (table["rows"], table["warnings"]) == ([], ["2 of 2 runs have not succeeded (yet)"])


@pytest.mark.both_databases
def test_an_answer_is_kept_until_there_are_other_results(api, make_result):
    made = api.submit(repetitions=2)
    node, asked = api.worker(), {"experiment_id": made["id"]}
    before = {path: api.get(path, **asked) for path in ("/analysis/scaling", "/analysis/memory", "/analysis/report")}
    for done in (1, 2):
        lease = node.claim()
        assert api.get("/analysis/scaling", **asked) == before["/analysis/scaling"]
        node.upload(lease, make_result([9, 1, 1]))
        after = {path: api.get(path, **asked) for path in before}
        assert [path for path in before if after[path] == before[path]] == []
        assert after == {path: api.get(path, **asked) for path in before}
        assert after["/analysis/scaling"]["rows"][0]["runs"] == done
        before = after


@pytest.mark.parametrize(
    ("counted", "ratio", "reason"),
    [({"threads": [{"instructions": 5}], "unavailable": {}}, 1.0, ""),
     ({"threads": [{"instructions": None}], "unavailable": {"instructions": "no such counter"}}, None,
      "no such counter")],
)  # fmt: skip
def test_instructions_are_compared_where_they_were_counted(api, make_result, counted, ratio, reason):
    api.submit(repetitions=2)
    node = api.worker()
    runs = []
    for _ in range(2):
        lease = node.claim()
        node.upload(lease, {**make_result([9, 1, 1]), "counters": counted})
        runs.append(lease["run_id"])
    found = api.get("/analysis/compare", a=str(runs[0]), b=str(runs[1]))["instructions"]
    assert (found["ratio"], found["reason"]) == (ratio, reason)


def test_two_selections_are_compared_in_pairs(api, measured):
    a, b = (f"experiment_id={measured},scheduler={scheduler},threads=2" for scheduler in ("fork-join", "task"))
    found = api.get("/analysis/compare", a=a, b=b)
    assert (found["verdict"], found["paired"]) == ("faster", True)
    assert found["ratio"] == pytest.approx(1.6)
    assert found["p_value"] == pytest.approx(2 / 64)
    assert (len(found["a"]["runs"]), found["b"]["variant"]) == (6, {"scheduler": "task", "threads": 2})
    assert found["differs"] == []
    assert api.get("/analysis/compare", a=b, b=a)["verdict"] == "slower"
    assert api.get("/analysis/compare", a=a, b=b, noise_floor=0.9)["verdict"] == "same"


def test_two_runs_are_compared_by_their_steps(api, measured):
    runs = api.runs(measured)
    fork, task = (
        next(r["id"] for r in runs if r["variant"] == {"scheduler": s, "threads": 2}) for s in ("fork-join", "task")
    )
    found = api.get("/analysis/compare", a=str(fork), b=str(task))
    assert (found["verdict"], found["a"]["run_ids"], found["b"]["runs"]) == ("undecided", [fork], [task])
    assert found["a"]["step_s"]["over"] == "steps"


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize(
    ("a", "b", "status", "kind"),
    [
        ("1", "x", 422, "invalid-request"),
        ("1", "experiment_id=1,cheese=1", 422, "invalid-request"),
        ("1", "99", 404, "not-found"),
        ("1", "experiment_id=99", 404, "not-found"),
        ("1", "experiment_id=1,threads=7", 422, "nothing-to-compare"),
    ],
)
def test_what_cannot_be_selected_is_a_problem(api, a, b, status, kind):
    assert api.get("/analysis/compare", status, a=a, b=b)["type"] == f"/problems/{kind}"


@pytest.mark.usefixtures("measured")
def test_a_run_without_a_result_is_not_compared(api):
    queued = api.runs(api.submit()["id"])[0]["id"]
    problem = api.get("/analysis/compare", 422, a="1", b=str(queued))
    assert (problem["type"], problem["current"]) == ("/problems/nothing-to-compare", "queued")


def test_scaling_of_an_unknown_experiment_is_not_found(empty_api):
    assert empty_api.get("/analysis/scaling", 404, experiment_id=7)["type"] == "/problems/not-found"


PEAKS = {"peaks": {"threads": {"1": {"gflop_per_s": 200.0, "triad_gb_per_s": 10.0},
                               "2": {"gflop_per_s": 400.0, "triad_gb_per_s": 12.0}}}}  # fmt: skip
# Two rows of two tasks each: a barrier between the ops costs 2 of 6 s on two cores.
PROFILE = {
    "schema": "taskloom-profile-1", "config": {"sync": "step"}, "environment": {}, "ops": [["fc", "forward"]],
    "tasks": {"op": [0] * 4, "layer": [None] * 4, "label": [""] * 4, "mean_s": [1.0, 3.0, 3.0, 1.0],
              "flop": [10**12] * 4, "bytes": [10**6] * 4},
    "op_first": [0, 2, 4], "nodes": [-1, 0, 1, 2, 3, -1],
    "edges": [[0, 1], [0, 2], [1, 3], [2, 4], [3, 5], [4, 5]], "crossing": [[5, 0]],
}  # fmt: skip


@pytest.fixture
def explained(api, make_result):
    """Both schedulers on one and two threads, one run each, with all that a result can tell, and a profile."""
    made = api.submit(
        base={"model": "tiny", "token_slice": 64, "batch_slice": 1},
        axes={"scheduler": ["fork-join", "task"], "threads": [1, 2]},
    )
    node = api.worker()
    step_s = {("fork-join", 1): 8.0, ("fork-join", 2): 6.0, ("task", 1): 8.0, ("task", 2): 4.0}
    for _ in range(made["runs"]):
        lease = node.claim()
        spec = lease["spec"]
        threads, s = spec["threads"], step_s[spec["scheduler"], spec["threads"]]
        result = make_result([9, s, s], scheduler=spec["scheduler"], threads=threads, environment=PEAKS)
        split = {"barrier_s": 2 * s - 16 / threads, "starvation_s": 0.0, "scheduling_s": 0.0, "idle_s": 0.0}
        result["threads"] = [{"thread": i, "useful_s": 16 / threads, **split} for i in range(threads)]
        result["graph"] = {"t1_s": 8.0, "tinf_s": 4.0, "fork_join_tinf_s": 6.0}
        result["ops"] = [{"op": "fc", "phase": "forward", "calls": 8, "time_s": 16.0, "flop": 10**12, "bytes": 10**9}]
        result["memory_bytes"] = {"weights": 1, "peak_rss": 10**9}
        result["resident_bytes"] = {"interpreter": 9 * 10**8, "arenas": 5 * 10**7}
        if threads == 1:
            node.leave(lease, "profile.json.gz", gzip.compress(json.dumps(PROFILE).encode()))
        node.upload(lease, result)
    return made["id"]


def by_place(rows):
    return {(row["variant"]["scheduler"], row["variant"]["threads"]): row for row in rows}


def test_efficiency_says_where_the_time_went(api, explained):
    rows = by_place(api.get("/analysis/efficiency", experiment_id=explained)["rows"])
    fork, task = rows["fork-join", 2], rows["task", 2]
    assert fork["efficiency"]["parallel"] == pytest.approx(8 / 12)
    assert fork["waiting"]["load_balance"] == pytest.approx(8 / 12)
    assert task["efficiency"]["parallel"] == pytest.approx(1)
    assert fork["scalability"]["computation"] == pytest.approx(1)
    assert fork["bounds"]["gain_limit"] == pytest.approx(1.5)
    assert fork["missing"] == []


def test_roofline_holds_ops_against_the_nodes_peaks(api, explained):
    rows = by_place(api.get("/analysis/roofline", experiment_id=explained)["rows"])
    (op,) = rows["task", 2]["ops"]
    assert op["achieved_gflop_per_s"] == pytest.approx(125.0)
    assert (op["attainable_gflop_per_s"], op["bound"]) == (400.0, "compute")
    assert rows["task", 2]["phases"][0]["answer"] == "no"


def test_forecast_comes_from_the_profile_of_one_thread_and_shows_its_error(api, explained):
    found = api.get("/analysis/forecast", experiment_id=explained, cores="1,2,128")
    (forecast,) = found["forecasts"]
    curves = {(c["scheduler"], c["bandwidth"]): {p["cores"]: p for p in c["points"]} for c in forecast["curves"]}
    assert set(curves) == {(s, b) for s in ("fork-join", "task") for b in ("grows", "held")}
    assert curves["task", "grows"][2]["step_s"] == pytest.approx(4.0)
    assert curves["fork-join", "grows"][2]["step_s"] == pytest.approx(6.0)
    assert curves["fork-join", "grows"][2]["error"] == pytest.approx(0.0)
    assert forecast["worst_error"] == pytest.approx(0.0)
    assert any("bandwidth" in told for told in forecast["assumptions"])
    assert found["missing"] == []


def test_without_a_profile_there_is_no_forecast(api, measured):
    found = api.get("/analysis/forecast", experiment_id=measured)
    assert (found["forecasts"], found["missing"]) == ([], ["slices 1x64: no one-thread run left a profile"])


def test_memory_is_what_the_formula_says(api, explained):
    for row in api.get("/analysis/memory", experiment_id=explained)["rows"]:
        memory = row["memory"]
        assert memory["exact"] is False  # the results above made it up
        assert memory["planned_bytes"]["weights"] > 100_000
        assert memory["explained"] == pytest.approx(0.95)
        assert memory["per_sequence_bytes"]["weights"] == 0
        assert memory["per_sequence_bytes"]["activations"] > 0
        totals = [shape["total_bytes"] for shape in memory["with_seq"]]
        assert (len(totals), totals) == (2, sorted(totals))  # the context ends at 128


def test_a_sweep_compares_along_an_axis(api, measured):
    found = api.get("/analysis/sweep", experiment_id=measured)
    assert (found["axis"], found["comparisons"]) == ("scheduler", 2)
    rows = {row["at"]["threads"]: row for row in found["rows"]}
    assert rows[2]["ratio"] == pytest.approx(1.6)
    assert rows[2]["p_adjusted"] >= rows[2]["p_value"]
    assert api.get("/analysis/sweep", experiment_id=measured, axis="threads")["axis"] == "threads"
    problem = api.get("/analysis/sweep", 422, experiment_id=measured, axis="cheese")
    assert problem["errors"][0]["accepted"].startswith("a setting: ")


@pytest.mark.parametrize("path", ["sweep", "efficiency", "roofline", "forecast", "memory"])
def test_analysis_of_an_unknown_experiment_is_not_found(empty_api, path):
    assert empty_api.get(f"/analysis/{path}", 404, experiment_id=7)["type"] == "/problems/not-found"


@pytest.mark.parametrize("cores", ["0", "x", "1,2000", "1,,2", ",".join(["1"] * 33), ""])
def test_cores_to_forecast_are_checked(empty_api, cores):
    assert empty_api.get("/analysis/forecast", 422, experiment_id=1, cores=cores)["errors"]


def run_all(node, make_result, step_s, core_hash="abc"):
    """Execute what is queued with one version of the core; each run takes the next of step_s."""
    for s in step_s:
        lease = node.claim()
        environment = {"core_hash": core_hash}
        node.upload(lease, make_result([9, s, s], scheduler=lease["spec"]["scheduler"], environment=environment))


NOISE = (1.0, 1.004, 0.996, 1.002, 0.998, 1.006)


@pytest.mark.both_databases
@pytest.mark.parametrize(("again", "state"), [(1.1, "confirmed"), (1.0, "dismissed")])
def test_a_regression_is_suspected_confirmed_by_fresh_runs_or_dismissed(api, make_result, again, state):
    api.submit(base={"token_slice": 64, "batch_slice": 1}, repetitions=12)
    node = api.worker()
    run_all(node, make_result, NOISE)
    run_all(node, make_result, [s * 1.1 for s in NOISE], "new")
    (series,) = api.get("/analysis/history")["items"]
    (alert,) = series["alerts"]
    assert (alert["change"]["cause"], alert["change"]["differs"]) == ("unproven", ["core_hash: abc / new"])
    assert (alert["state"], alert["change"]["first_after"], len(series["points"])) == ("suspected", 7, 12)
    made = api.post("/analysis/history/7/confirm", status=201)
    assert (made["runs"], made["request"]["confirms"]) == (6, 7)
    assert api.post("/analysis/history/7/confirm", status=201)["id"] == made["id"]
    assert api.get("/analysis/history")["items"][0]["alerts"][0]["state"] == "confirming"
    run_all(node, make_result, [s * again for s in NOISE], "new")
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
    assert "old and new build in turn" in alert["reason"]


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
    assert suspected in (12, 13)  # where ranks place the change
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
    """Whether every experiment that ended has been searched for what became slower."""
    unsearched = "finished_at IS NOT NULL AND (alerts_at IS NULL OR alerts_at < finished_at)"
    return not api.sql(f"SELECT id FROM experiment WHERE {unsearched}")


def test_where_that_is_not_wanted_what_became_slower_waits_to_be_confirmed(start_server, make_result):
    api = start_server(poll_s=0.05, analysis_processes=1)  # a process of its own searches
    node = api.worker()
    for level in (1.0, 1.1):
        api.submit(base={"token_slice": 64, "batch_slice": 1}, repetitions=6)
        run_all(node, make_result, [s * level for s in NOISE])
    until(lambda: searched(api))
    assert [row["state"] for row in api.get("/analysis/alerts")["items"]] == ["suspected"]
    assert len(api.get("/experiments")["items"]) == 2
    assert api.get("/analysis/history")["items"][0]["alerts"][0]["state"] == "suspected"


def test_history_of_an_unknown_run_is_not_found(empty_api):
    assert empty_api.get("/analysis/history", 404, run_id=7)["type"] == "/problems/not-found"
    assert empty_api.post("/analysis/history/7/confirm", status=404)["type"] == "/problems/not-found"


FIGURES = [
    "Ratios: fork-join time / task time",
    "Time of a step by variant and phase",
    "Distribution of samples",
    "Speedup",
    "Speedup of forward and backward",
    "Where the threads' time went",
    "Timeline of one step",
    "Roofline of task (sync step) 1x64, 2 threads",
    "Forecast",
    "Memory by variant",
    "Growth of memory",
]


def test_the_report_is_one_document_and_one_page(api, explained):
    document = api.get("/analysis/report", experiment_id=explained)
    assert document["schema"] == "taskloom.report/1"
    assert document["conclusion"].startswith("The smallest median has task")  # of too few to be proven
    assert document["timeline"]["rows"][0]["scheduler"] == "fork-join"
    assert len(document["card"]) == 11
    page = api.http.get(f"/reports/{explained}")
    assert page.headers["content-type"].startswith("text/html")
    assert "script" not in page.headers["content-security-policy"]
    assert [html.unescape(label) for label in re.findall(r'<svg [^>]*aria-label="([^"]*)"', page.text)] == FIGURES
    assert document["conclusion"].partition("<")[0][:60] in page.text


def one_bit(result):
    result["losses"][-1] = math.nextafter(result["losses"][-1], 0.0)


def foreign_load(result):
    result["validity"] = {"foreign": {"cores": [0], "busy_s": 3.0, "own_s": 2.0, "foreign_s": 1.0}}


def other_processor(result):
    result["environment"]["cpu_model"] = "Other CPU"


@pytest.mark.parametrize(
    ("spoil", "told", "rule"),
    [(one_bit, "disagree", 9), (foreign_load, "foreign load", 7), (other_processor, "Some CPU / Other CPU", 6)],
)
def test_one_run_that_spoils_a_comparison_is_told_wherever_it_counts(api, make_result, spoil, told, rule):
    made = api.submit(
        base={"token_slice": 64, "batch_slice": 1}, axes={"scheduler": ["fork-join", "task"]}, repetitions=6
    )
    node, spoilt = api.worker(), None
    for _ in range(made["runs"]):
        lease = node.claim()
        result = make_result([9, 1.0, 1.0, 1.0], scheduler=lease["spec"]["scheduler"])
        if spoilt is None and lease["spec"]["scheduler"] == "task":
            spoilt = lease["run_id"]
            spoil(result)
        node.upload(lease, result)
    a, b = (f"experiment_id={made['id']},scheduler={scheduler}" for scheduler in ("fork-join", "task"))
    compared = api.get("/analysis/compare", a=a, b=b)
    assert told in " ".join([compared["reason"], *compared["differs"], *compared["marks"]])
    assert (compared["verdict"] == "refused") == (spoil is one_bit)
    if spoil is not one_bit:  # the ratio is shown, and the reason says to look
        assert "see " in compared["reason"]
    table = api.get("/analysis/scaling", experiment_id=made["id"])
    assert any(told in warning for warning in table["warnings"])
    assert [row["agrees"] for row in table["rows"]] == [True, spoil is not one_bit]
    report = api.get("/analysis/report", experiment_id=made["id"])
    assert report["card"][rule - 1]["holds"] != "yes"
    assert f"{rule}" in report["conclusion"].rpartition("not fully kept: ")[2].partition(" (")[0].split(", ")
    if spoil is foreign_load:
        assert report["marks"][0].startswith(f"run {spoilt}: foreign load")
        left = api.get("/analysis/report", experiment_id=made["id"], disturbed="leave-out")
        assert left["left_out"] == [spoilt]


def test_the_report_of_an_unknown_experiment_is_not_found(empty_api):
    assert empty_api.get("/analysis/report", 404, experiment_id=7)["type"] == "/problems/not-found"
    assert empty_api.http.get("/reports/7").status_code == 404


@pytest.mark.both_databases
def test_equal_runs_say_what_a_node_can_tell_apart(api, make_result):
    assert api.get("/analysis/calibration")["items"] == []
    made = api.submit(base={"token_slice": 64, "batch_slice": 1}, repetitions=8, calibrates=True)
    node = api.worker()
    run_all(node, make_result, [1.0, 1.01] * 4)
    (found,) = api.get("/analysis/calibration")["items"]
    assert (found["experiment_id"], found["node"], found["pairs"]) == (made["id"], "n1", 4)
    assert found["spread"] == pytest.approx(math.log(1.01))
    plan = api.post("/experiments?dry_run=true", {"base": {"model": "tiny"}, "repetitions": 10})
    (seen,) = plan["detectable"]
    ten = next(each for each in found["detectable"] if each["pairs"] == 10)
    assert (seen["node"], seen["pairs"], seen["relative"]) == ("n1", 10, pytest.approx(ten["relative"]))


@pytest.mark.parametrize(
    ("asked", "pointer"), [({"axes": {"threads": [1, 2]}, "repetitions": 8}, "/axes"), ({}, "/repetitions")]
)
def test_a_calibration_varies_nothing_and_takes_pairs(empty_api, asked, pointer):
    problem = empty_api.submit(422, calibrates=True, **asked)
    assert problem["errors"][0]["pointer"] == pointer
