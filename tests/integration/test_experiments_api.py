from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

pytestmark = pytest.mark.both_databases

SWEEP = {
    "name": "sweep",
    "base": {"model": "tiny", "steps": 4},
    "axes": {"scheduler": ["fork-join", "task"], "threads": [1, 2]},
    "repetitions": 3,
}


def test_a_submission_queues_every_run_in_its_order(api):
    made = api.submit(**SWEEP)
    assert (made["runs"], made["by_state"], made["state"]) == (12, {"queued": 12}, "active")
    assert made["request"] == SWEEP
    runs = api.runs(made["id"])
    assert [run["position"] for run in runs] == list(range(12))
    assert [run["block"] for run in runs] == [0] * 4 + [1] * 4 + [2] * 4
    for block in range(3):
        variants = [tuple(run["variant"].values()) for run in runs if run["block"] == block]
        assert sorted(variants) == [("fork-join", 1), ("fork-join", 2), ("task", 1), ("task", 2)]
    assert api.get(f"/experiments/{made['id']}") == made


def test_a_dry_run_tells_the_same_and_queues_nothing(api):
    planned = api.post("/experiments?dry_run=true", SWEEP)
    assert (planned["runs"], planned["variants"], planned["estimate_basis"]) == (12, 4, "guess")
    assert planned["memory_bytes"] > 0
    assert api.get("/experiments")["items"] == []
    runs = api.runs(api.submit(**SWEEP)["id"])
    kept = ("position", "block", "repetition", "variant")
    assert [{key: run[key] for key in kept} for run in runs] == planned["order"]


@pytest.mark.parametrize("more", [{}, {"stop": {"rel_ci": 0.1, "max_repetitions": 4}}])
def test_repetitions_of_null_are_stored_as_the_number_that_they_stand_for(api, more):
    asked = {"base": {"steps": 4}, "repetitions": None, **more}
    made = api.submit(headers={"Idempotency-Key": "once"}, **asked)
    assert made["request"]["repetitions"] == 1
    assert api.submit(headers={"Idempotency-Key": "once"}, **asked)["id"] == made["id"]
    assert api.get("/analysis/report", experiment_id=made["id"])["design"]["repetitions"] == 1


def test_an_experiment_on_an_lstm_is_planned_by_its_sizes(api):
    asked: dict[str, Any] = {
        "base": {"model": "lstm-deep", "batch": 4, "seq": 64},
        "axes": {"scheduler": ["fork-join", "task"], "threads": [1, 8]}, "repetitions": 2,
    }  # fmt: skip
    planned = api.post("/experiments?dry_run=true", asked)
    model = {"network": "lstm", "embedding": 512, "hidden": 512, "layers": 8, "vocab": 10000}
    assert planned["runs"] == 8
    assert planned["memory_bytes"] == api.post("/experiments?dry_run=true", {
        **asked, "base": {**asked["base"], "model": model},
    })["memory_bytes"] > 300 << 20  # fmt: skip
    run = api.get(f"/runs/{api.runs(api.submit(**asked)['id'])[0]['id']}")
    assert run["spec"]["model"] == {**model, "context": 1024, "tied": False, "name": "lstm-deep"}
    assert (run["spec"]["batch_slice"], run["spec"]["token_slice"]) == (4, 8)  # of the widest team


@pytest.mark.parametrize(
    ("changes", "pairs", "smallest_p", "needed"),
    [
        ({}, 8, 8 / 128, 9),
        ({"repetitions": 9}, 9, 8 / 256, 9),
        ({"axes": {"scheduler": ["fork-join", "task"], "token_slice": [16, 32, 64]}}, 8, 4 / 128, 8),
        ({"axes": {"scheduler": ["fork-join", "task"]}, "repetitions": 5}, 5, 1.0, 6),
        ({"order": "sequential"}, 0, 1.0, 9),
        ({"stop": {"rel_ci": 0.01, "max_repetitions": 10}}, 10, pytest.approx(0.0443, abs=1e-4), 10),
    ],
)
def test_a_dry_run_says_whether_its_pairs_can_decide_anything(empty_api, changes, pairs, smallest_p, needed):
    """Six comparisons and two pooled ratios are adjusted together; eight pairs reach 1/128."""
    axes = {"scheduler": ["fork-join", "omp-for", "task"], "token_slice": [16, 32, 64]}
    asked = {"base": {"model": "tiny", "threads": 2}, "axes": axes, "repetitions": 8, **changes}
    found = empty_api.post("/experiments?dry_run=true", asked)["family"]
    assert (found["pairs"], found["smallest_p"], found["needed"]) == (pairs, smallest_p, needed)
    schedulers, places = len(asked["axes"]["scheduler"]), len(asked["axes"].get("token_slice", [0]))
    assert found["comparisons"] == (schedulers - 1) * places
    assert found["pooled"] == (schedulers - 1 if places > 1 else 0)


FORK, TASK = {"scheduler": "fork-join", "threads": 2}, {"scheduler": "task", "threads": 2}
QUESTION = {"a": FORK, "b": TASK}
AXES = {"scheduler": ["fork-join", "task"], "threads": [1, 2]}


@pytest.mark.parametrize(
    ("asked", "repetitions", "family", "question"),
    [
        ({"axes": AXES}, 7, (2, 7, True), None),
        ({"axes": AXES, "primary": QUESTION}, 6, (1, 6, True), (6, True)),
        ({"axes": AXES, "primary": QUESTION, "repetitions": 5}, 5, (1, 6, False), (6, False)),
        ({"axes": AXES, "primary": {"a": TASK, "b": {**TASK, "threads": 1}}}, 7, (2, 7, True), (6, True)),
        ({"axes": AXES, "primary": QUESTION, "order": "sequential"}, 1, (1, 6, False), (6, False)),
        ({"axes": {"scheduler": ["fork-join", "omp-for", "task"], "token_slice": [16, 32, 64]}}, 9, (6, 9, True), None),
        ({"axes": {"seed": [1, 2]}}, 1, None, None),
        ({"base": {"threads": 2}}, 1, None, None),
        ({"calibrates": True}, 20, None, None),
    ],
)
def test_by_default_repetitions_suffice_for_a_verdict(api, asked, repetitions, family, question):
    """A dry run says what its pairs can decide, and how many can."""
    plan = api.post("/experiments?dry_run=true", asked)
    assert plan["repetitions"] == repetitions == max(run["repetition"] for run in plan["order"])
    counts = plan["family"] and tuple(plan["family"][name] for name in ("comparisons", "needed", "decidable"))
    assert counts == family
    assert (plan["primary"] and (plan["primary"]["needed"], plan["primary"]["decidable"])) == question
    made = api.submit(**asked)
    assert made["runs"] == plan["runs"]
    assert made["request"].get("repetitions", 1) == repetitions
    assert api.get(f"/experiments/{made['id']}")["request"].get("primary") == asked.get("primary")


@pytest.mark.parametrize(
    ("asked", "pointers"),
    [
        (
            {
                "base": {"batch": 0, "lr": -1, "cheese": 1, "data": "", "model": {"heads": 3, "channels": 10}},
                "axes": {"threads": [1, 0, "two"], "beta1": [2], "brie": [1]},
                "zip": [{"seq": [64, -1], "sync": ["step", "never"]}],
                "repetitions": 0,
                "stop": {"rel_ci": 2},
                "priority": 1000,
            },
            ["/axes/beta1/0", "/axes/brie", "/axes/threads/1", "/axes/threads/2", "/base/batch", "/base/cheese",
             "/base/data", "/base/lr", "/base/model/channels", "/priority", "/repetitions", "/stop/rel_ci",
             "/zip/0/seq/1", "/zip/0/sync/1"],
        ),
        (
            {
                "base": {"lr": -1, "eps": 0, "batch": 4},
                "axes": {"threads": [1, 0], "scheduler": []},
                "exclude": [{"brie": 1}],
                "repetitions": 7,
                "stop": {"rel_ci": 0.1, "max_repetitions": 6},
                "builds": ["0" * 64, "0" * 64],
            },
            ["/axes/scheduler", "/axes/threads/1", "/base/eps", "/base/lr", "/builds", "/exclude/0/brie",
             "/stop/max_repetitions"],
        ),
        (
            {
                "base": {"batch_slice": 9, "token_slice": 999, "seq": 300, "steps": 3, "warmup": 3},
                "axes": {"scheduler": ["serial", "task"], "threads": [1, 2]},
                "repetitions": 7,
                "stop": {"rel_ci": 0.1, "max_repetitions": 6},
            },
            ["/axes/threads/1", "/base/batch_slice", "/base/seq", "/base/token_slice", "/base/warmup",
             "/stop/max_repetitions"],
        ),
        (
            {
                "axes": {"threads": 2, "seq": ["x"]},
                "zip": [3, {"scheduler": "task", "lr": [-1, 0.1]}, "y", {"batch": [1], "seq": None}],
                "exclude": [{"threads": 1}, 4, ["z"]],
                "space": {"batch_slice": 1},
            },
            ["/axes/seq/0", "/axes/threads", "/exclude/1", "/exclude/2", "/space/batch_slice", "/zip/0",
             "/zip/1/lr/0", "/zip/1/scheduler", "/zip/2", "/zip/3/seq"],
        ),
    ],
)  # fmt: skip
def test_one_answer_names_every_wrong_value(empty_api, asked, pointers):
    errors = empty_api.post("/experiments", asked, 422)["errors"]
    assert sorted(error["pointer"] for error in errors) == pointers
    assert {error["field"] for error in errors if error["pointer"].startswith("/axes/threads")} <= {"threads"}
    assert all(error["accepted"] for error in errors)


def test_a_question_names_one_variant_on_each_side(api):
    found = api.post("/experiments", {"axes": AXES, "primary": {"a": {"scheduler": "task"}, "b": {"seed": 7}}}, 422)
    assert [(each["pointer"], each["value"]) for each in found["errors"]] == [
        ("/primary/a", {"scheduler": "task"}), ("/primary/b", {"seed": 7}),
    ]  # fmt: skip
    assert "threads (1, 2)" in found["errors"][0]["accepted"]


def test_a_dry_run_that_compares_nothing_has_no_family(api):
    assert api.post("/experiments?dry_run=true", {"base": {"steps": 10}, "repetitions": 3})["family"] is None


def test_a_dry_run_estimates_from_finished_runs_of_the_same_shape(api, make_result):
    api.submit(base={"steps": 4})
    node = api.worker()
    lease = node.claim()
    node.upload(lease, make_result([9, 0.5, 0.5, 0.5]))
    known = api.post("/experiments?dry_run=true", {"base": {"steps": 10}, "repetitions": 3})
    assert (known["estimated_s"], known["estimate_basis"]) == (pytest.approx(15, abs=1), "same-shape")
    other = api.post("/experiments?dry_run=true", {"base": {"batch": 2}})
    assert (other["estimated_s"] > 0, other["estimate_basis"]) == (True, "guess")


PARTS = {"delivering_s": 0.5, "claiming_s": 40.0, "starting_s": 1.0, "planning_s": 0.25, "compiling_s": 30.0,
         "preparing_s": 0.25, "warmup_s": 2.0, "timed_s": 6.0, "finishing_s": 0.5}  # fmt: skip


def test_estimates_contain_start_warm_up_and_delivery_and_no_wait(api, make_result):
    """The first run compiles, the second does not."""
    api.submit(base={"steps": 4}, repetitions=2)
    node = api.worker()
    for compiling_s in (30.0, 0.5):
        parts = {**PARTS, "compiling_s": compiling_s}
        node.upload(node.claim(), {**make_result([1.5, 1.5, 1.5, 1.5]), "node_time": parts})
    asked = {"base": {"steps": 8}, "repetitions": 5}
    found = api.post("/experiments?dry_run=true", asked)
    run_s = 0.5 + 1 + 0.25 + 0.25 + 0.5 + 0.5 + 8 * (2 + 6) / 4
    assert (found["estimated_s"], found["estimate_basis"]) == (pytest.approx(5 * run_s), "same-shape")
    traced = api.post("/experiments?dry_run=true", {**asked, "trace": "first"})
    assert traced["estimated_s"] == pytest.approx(6 * run_s)
    twice = api.post("/experiments?dry_run=true", {"base": {"steps": 8}, "axes": {"threads": [1, 2]}, "repetitions": 5})
    assert twice["estimate_basis"] == "guess"
    assert 5 * run_s < twice["estimated_s"] < 10 * run_s
    queued = api.submit(**asked)
    active = api.get(f"/experiments/{queued['id']}")
    assert (active["eta_s"], active["eta_basis"]) == (pytest.approx(5 * run_s), "finished-runs")
    api.submit(base={"batch": 2})
    overview = api.get("/overview")
    assert overview["eta_basis"] == "guess"
    assert [each["eta_basis"] for each in overview["experiments"]] == ["finished-runs", "guess"]
    assert overview["eta_s"] > active["eta_s"]


def test_the_same_key_and_body_is_one_experiment(api):
    first = api.submit(headers={"Idempotency-Key": "k1"}, **SWEEP)
    api.post(f"/experiments/{first['id']}/cancel")
    answer = api.http.post("/api/v1/experiments", json=SWEEP, headers={"Idempotency-Key": "k1"})
    assert (answer.status_code, answer.json()) == (201, first)
    assert answer.headers["Idempotent-Replayed"] == "true"
    assert len(api.get("/experiments")["items"]) == 1


def test_the_same_key_and_another_body_is_a_conflict(api):
    first = api.submit(headers={"Idempotency-Key": "k1"}, **SWEEP)
    problem = api.submit(409, {"Idempotency-Key": "k1"}, **{**SWEEP, "repetitions": 4})
    assert problem["type"] == "/problems/idempotency-conflict"
    assert problem["experiment_id"] == first["id"]
    assert api.submit(headers={"Idempotency-Key": "k2"}, **SWEEP)["id"] != first["id"]


def test_the_same_key_at_the_same_moment_is_one_experiment(api):
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: api.submit(headers={"Idempotency-Key": "k"}, **SWEEP), range(16)))
    assert len({answer["id"] for answer in answers}) == 1
    assert api.sql("SELECT count(*) FROM experiment") == [(1,)]


@pytest.mark.parametrize(
    ("body", "pointer", "field"),
    [
        ({"base": {"scheduler": "openmp"}}, "/base/scheduler", "scheduler"),
        ({"base": {"threads": 0}}, "/base/threads", "threads"),
        ({"base": {"model": {"heads": [1]}}}, "/base/model/heads", "heads"),
        ({"base": {"model": {"channels": 10, "heads": 3}}}, "/base/model/channels", "channels"),
        ({"base": {"seq": 4096}}, "/base/seq", "seq"),
        ({"base": {"cheese": 1}}, "/base/cheese", "cheese"),
        ({"axes": {"threads": [1, 0]}}, "/axes/threads/1", "threads"),
        ({"axes": {"threads": 1}}, "/axes/threads", "threads"),
        ({"repetitions": 0}, "/repetitions", "repetitions"),
        ({"cheese": 0}, "/cheese", "cheese"),
        ({"limits": {"timeout_s": -1}}, "/limits/timeout_s", "timeout_s"),
        ({"name": "a\x00b"}, "", "body"),
    ],
)
def test_bad_requests_name_the_field(empty_api, body, pointer, field):
    problem = empty_api.submit(422, **body)
    assert problem["type"] == "/problems/invalid-request"
    found = {(error["pointer"], error["field"]) for error in problem["errors"]}
    assert (pointer, field) in found, problem
    assert all(error["accepted"] for error in problem["errors"])


@pytest.mark.parametrize("key", ["", "k" * 201])
def test_a_bad_key_is_refused(empty_api, key):
    assert empty_api.submit(422, {"Idempotency-Key": key})["errors"][0]["field"] == "idempotency-key"


def test_what_no_registered_node_has_is_refused_at_submission(api):
    api.submit(base={"threads": 3})
    api.worker(cores=[0, 1], memory_bytes=1 << 30)
    assert api.submit(422, base={"threads": 3})["errors"][0]["pointer"] == "/base/threads"
    problem = api.submit(422, base={"model": "gpt2-1.5b"})
    assert "1073741824 bytes" in problem["errors"][0]["accepted"]


def test_too_many_runs_have_their_own_problem(start_server):
    api = start_server(max_runs=10)
    problem = api.submit(422, repetitions=11)
    assert (problem["type"], problem["runs"], problem["max_runs"]) == ("/problems/expansion-too-large", 11, 10)


def test_experiments_are_listed_newest_first_in_pages(api):
    ids = [api.submit(name=str(i))["id"] for i in range(5)]
    found, cursor = [], None
    while True:
        page = api.get("/experiments", limit=2, **({"cursor": cursor} if cursor else {}))
        found += [item["id"] for item in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert found == ids[::-1]
    assert "request" not in page["items"][0]


@pytest.mark.parametrize(
    "base", [{"threads": "x"}, {"threads": [2]}, {"scheduler": 7}, {"model": {"name": 3}}, {"network": None}], ids=str
)
def test_a_request_without_a_name_is_refused_for_its_values(empty_api, base):
    assert empty_api.post("/experiments", {"base": base}, 422)["errors"]


def test_settings_that_are_null_have_a_name_too(api):
    named = api.post("/experiments", {"base": {"model": "tiny", "threads": None}}, 201)
    assert named["name"] == "tiny, threads default"
