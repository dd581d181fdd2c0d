import pytest


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
    assert best["variant"] == {"scheduler": "task", "threads": 2}
    assert best["agrees"] is True
    assert table["warnings"] == []


def test_scaling_of_what_has_not_finished_says_so(api):
    made = api.submit(repetitions=2)
    table = api.get("/analysis/scaling", experiment_id=made["id"])
    assert (table["rows"], table["warnings"]) == ([], ["2 of 2 runs have not succeeded (yet)"])


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
    assert (found["verdict"], found["a"]["runs"], found["b"]["runs"]) == ("undecided", [fork], [task])
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
