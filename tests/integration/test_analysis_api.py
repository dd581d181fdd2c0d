import math

import pytest

from gpt2core.networks.memory import memory_bytes
from gpt2core.spec.config import TrainConfig
from taskloom.server.read.analysis import analyses
from tests.support.present import present


@pytest.fixture(scope="module")
def measured(file_api, make_result):
    """Six finished repetitions of fork-join and task on one and two threads."""
    axes = {"scheduler": ["fork-join", "task"], "threads": [1, 2]}
    made = file_api.submit(base={"token_slice": 64, "batch_slice": 1}, axes=axes, repetitions=6)
    node = file_api.worker()
    step_s = {("fork-join", 1): 1.0, ("fork-join", 2): 0.8, ("task", 1): 1.0, ("task", 2): 0.5}
    for i in range(made["runs"]):
        lease = node.claim()
        spec = lease["spec"]
        s = step_s[spec["scheduler"], spec["threads"]] * (1 + 0.001 * (i // 4))
        node.upload(lease, make_result([9, s, s], scheduler=spec["scheduler"], threads=spec["threads"]))
    return made["id"]


def test_scaling_has_a_row_for_each_variant(file_api, measured):
    table = file_api.get("/analysis/scaling", experiment_id=measured)
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


def test_two_selections_are_compared_in_pairs(file_api, measured):
    a, b = (f"experiment_id={measured},scheduler={scheduler},threads=2" for scheduler in ("fork-join", "task"))
    found = file_api.get("/analysis/compare", a=a, b=b)
    assert (found["verdict"], found["paired"]) == ("undecided", True)
    assert found["ratio"] == pytest.approx(1.6)
    assert found["p_value"] == pytest.approx(2 / 64)
    assert (len(found["a"]["runs"]), found["b"]["variant"]) == (6, {"scheduler": "task", "threads": 2})
    assert found["differs"] == []
    rows = file_api.get("/analysis/sweep", experiment_id=measured)["rows"]
    (row,) = (row for row in rows if row["at"] == {"threads": 2})
    assert (row["verdict"], row["p_adjusted"]) == (found["verdict"], found["family"]["p_adjusted"])
    assert found["family"] == {
        "experiment_id": measured, "comparisons": 2, "pooled": 0, "p_adjusted": None, "alone": "faster",
        "primary": False, "sentence": "It is judged as one of 2 comparisons of experiment 1; alone: faster.",
    }  # fmt: skip
    assert file_api.get("/analysis/compare", a=b, b=a)["family"]["alone"] == "slower"
    listed = (",".join(str(run["id"]) for run in file_api.runs(measured) if run["variant"] == side["variant"])
              for side in (found["a"], found["b"]))  # fmt: skip
    by_ids = file_api.get("/analysis/compare", **dict(zip("ab", listed, strict=True)))
    assert (by_ids["verdict"], by_ids["family"]) == (found["verdict"], found["family"])
    assert file_api.get("/analysis/compare", a=a, b=b, noise_floor=0.9)["verdict"] == "same"


def test_a_comparison_of_runs_depends_on_the_other_runs_of_their_experiment(api, make_result):
    """They are judged in its family."""
    axes = {"scheduler": ["fork-join", "task"]}
    api.submit(base={"token_slice": 64, "batch_slice": 1}, axes=axes, repetitions=2)
    node, runs = api.worker(), []
    for _ in range(3):
        lease = node.claim()
        node.upload(lease, make_result([9, 1, 1], scheduler=lease["spec"]["scheduler"]))
        runs.append(lease["run_id"])
    query = {"a": str(runs[0]), "b": str(runs[1])}
    before = api.http.get("/api/v1/analysis/compare", params=query).headers["etag"]
    assert api.http.get("/api/v1/analysis/compare", params=query).headers["etag"] == before
    lease = node.claim()
    node.upload(lease, make_result([9, 1, 1], scheduler=lease["spec"]["scheduler"]))
    assert api.http.get("/api/v1/analysis/compare", params=query).headers["etag"] != before


def test_two_runs_are_compared_by_their_steps(file_api, measured):
    runs = file_api.runs(measured)
    fork, task = (
        next(r["id"] for r in runs if r["variant"] == {"scheduler": s, "threads": 2}) for s in ("fork-join", "task")
    )
    found = file_api.get("/analysis/compare", a=str(fork), b=str(task))
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
def test_what_cannot_be_selected_is_a_problem(file_api, a, b, status, kind):
    assert file_api.get("/analysis/compare", status, a=a, b=b)["type"] == f"/problems/{kind}"


def test_a_run_without_a_result_is_not_compared(api, make_result):
    api.submit(repetitions=2, order="sequential")
    node = api.worker()
    node.upload(node.claim(), make_result())
    problem = api.get("/analysis/compare", 422, a="1", b="2")
    assert (problem["type"], problem["current"]) == ("/problems/nothing-to-compare", "queued")


def test_scaling_of_an_unknown_experiment_is_not_found(empty_api):
    assert empty_api.get("/analysis/scaling", 404, experiment_id=7)["type"] == "/problems/not-found"


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
    assert any("bandwidth" in assumption for assumption in forecast["assumptions"])
    assert found["missing"] == []


def test_without_a_profile_there_is_no_forecast(file_api, measured):
    found = file_api.get("/analysis/forecast", experiment_id=measured)
    assert (found["forecasts"], found["missing"]) == ([], ["slices 1x64: no one-thread run has a profile"])


def test_memory_is_what_the_formula_says(api, explained):
    for row in api.get("/analysis/memory", experiment_id=explained)["rows"]:
        memory = row["memory"]
        assert memory["exact"] is False  # the results above are invented
        assert memory["planned_bytes"]["weights"] > 100_000
        assert memory["explained"] == pytest.approx(0.95)
        assert memory["per_sequence_bytes"]["weights"] == 0
        assert memory["per_sequence_bytes"]["activations"] > 0
        totals = [shape["total_bytes"] for shape in memory["with_seq"]]
        assert (len(totals), totals) == (2, sorted(totals))  # the context ends at 128


def test_training_is_beside_inference_in_memory(file_api, measured):
    by_batch, by_seq = file_api.get("/analysis/memory", experiment_id=measured)["growth"]
    assert (by_batch["axis"], by_seq["axis"], by_batch["logits"]) == ("batch", "seq", "last")
    shape = {by_batch["axis"]: by_batch["size"], **by_batch["fixed"]}
    for one in (by_batch, by_seq):
        assert {one["axis"]: one["size"], **one["fixed"]} == shape
        (here,) = [point for point in one["points"] if point["size"] == one["size"]]
        config = {"model": "tiny", **shape}
        for mode, own in (("train", {}), ("infer", {"logits": "last"})):
            sizes = memory_bytes(TrainConfig.from_dict({**config, "mode": mode, **own}))
            assert here[f"{mode}_bytes"] == pytest.approx(sum(sizes.values()), rel=0.1)  # threads and slices differ
        assert here["weights_bytes"] == sizes["weights"]
        assert 0 < one["ratio"] < 0.5
        assert f"{one['ratio']:.0%} of training's" in one["sentence"]


def test_a_sweep_compares_along_an_axis(file_api, measured):
    found = file_api.get("/analysis/sweep", experiment_id=measured)
    assert (found["axis"], found["comparisons"]) == ("scheduler", 2)
    rows = {row["at"]["threads"]: row for row in found["rows"]}
    assert rows[2]["ratio"] == pytest.approx(1.6)
    assert rows[2]["p_value"] < 1
    assert (rows[2]["p_adjusted"], rows[2]["reason"][:17]) == (None, "too few processes")
    assert file_api.get("/analysis/sweep", experiment_id=measured, axis="threads")["axis"] == "threads"
    problem = file_api.get("/analysis/sweep", 422, experiment_id=measured, axis="cheese")
    assert problem["errors"][0]["accepted"].startswith("a setting: ")


@pytest.mark.both_databases
@pytest.mark.parametrize("cancelled", [True, False])
def test_an_experiment_is_judged_at_any_time_until_its_planned_end(api, make_result, cancelled):
    """Nine blocks have run, all of one sign: p = 1/256 for a number that was fixed beforehand. Whoever cancels the
    experiment has perhaps seen them."""
    axes = {"scheduler": ["fork-join", "task"]}
    made = api.submit(base={"token_slice": 64, "batch_slice": 1}, axes=axes, repetitions=10 if cancelled else 9)
    node = api.worker()

    def run(i):
        lease = node.claim()
        s = (1.2 if lease["spec"]["scheduler"] == "fork-join" else 1.0) * (1 + 0.001 * (5 * i // 2 % 7))
        node.upload(lease, make_result([9, s, s], scheduler=lease["spec"]["scheduler"]))

    def seen():
        found = api.get("/analysis/sweep", experiment_id=made["id"])
        (row,) = found["rows"]
        (variant, _) = api.get(f"/experiments/{made['id']}/variants")["rows"]
        return found["sequential"], row["p_value"], variant["high"] - variant["low"]

    for i in range(17):
        run(i)
    assert seen()[0] is True
    run(17)
    if cancelled:
        assert seen() == (True, pytest.approx(0.0105, abs=1e-4), pytest.approx(0.006, rel=0.1))
        api.post(f"/experiments/{made['id']}/cancel")
    p_value, width = (0.0105, 0.006) if cancelled else (1 / 256, 0.005)
    assert seen() == (cancelled, pytest.approx(p_value, abs=1e-4), pytest.approx(width, rel=0.1))


@pytest.mark.parametrize("path", ["sweep", "efficiency", "roofline", "forecast", "memory"])
def test_analysis_of_an_unknown_experiment_is_not_found(empty_api, path):
    assert empty_api.get(f"/analysis/{path}", 404, experiment_id=7)["type"] == "/problems/not-found"


@pytest.mark.parametrize("cores", ["0", "x", "1,2000", "1,,2", ",".join(["1"] * 33), ""])
def test_cores_to_forecast_are_checked(empty_api, cores):
    assert empty_api.get("/analysis/forecast", 422, experiment_id=1, cores=cores)["errors"]


@pytest.mark.both_databases
def test_equal_runs_say_what_a_node_can_tell_apart(api, make_result):
    assert api.get("/analysis/calibration")["items"] == []
    made = api.submit(base={"token_slice": 64, "batch_slice": 1}, repetitions=8, calibrates=True)
    node = api.worker()
    for s in [1.0, 1.01] * 4:
        node.upload(node.claim(), make_result([9, s, s]))
    (found,) = api.get("/analysis/calibration")["items"]
    assert (found["experiment_id"], found["node"], found["pairs"]) == (made["id"], "n1", 4)
    assert found["spread"] == pytest.approx(math.log(1.01))
    plan = api.post("/experiments?dry_run=true", {"base": {"model": "tiny"}, "repetitions": 10})
    (seen,) = plan["detectable"]
    ten = next(each for each in found["detectable"] if each["pairs"] == 10)
    assert (seen["node"], seen["pairs"], seen["relative"]) == ("n1", 10, pytest.approx(ten["relative"]))

    def detects(**asked):
        plan = api.post("/experiments?dry_run=true", {"base": {"model": "tiny"}, **asked})
        return plan["detectable"][0]["relative"]

    (known,) = analyses.calibrations(api.context.database)
    axes = {"scheduler": ["serial", "fork-join", "task"], "token_slice": [16, 32, 64]}
    # With two pooled ratios.
    assert detects(axes=axes, repetitions=9) == present(known.at(9, 8)) > present(known.at(9, 6))
    assert detects(axes=axes, repetitions=8) is None
    assert detects(axes=axes, repetitions=8, stop={"rel_ci": 0.1, "max_repetitions": 30}) == known.at(30, 8, True)
    assert detects(axes=axes, repetitions=10, order="sequential") is None


@pytest.mark.parametrize(
    ("asked", "pointer"),
    [({"axes": {"threads": [1, 2]}, "repetitions": 8}, "/axes"), ({"repetitions": 5}, "/repetitions")],
)
def test_a_calibration_varies_nothing_and_takes_pairs(empty_api, asked, pointer):
    problem = empty_api.submit(422, calibrates=True, **asked)
    assert problem["errors"][0]["pointer"] == pointer
