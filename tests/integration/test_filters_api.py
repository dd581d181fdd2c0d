"""Filters by expressions: what a list contains equals a scan of its rows, and what does not exist is named."""

import pytest
from sqlalchemy import event

from taskloom.server.read.lists import keyset
from taskloom.server.read.lists.parameters import MOST_VALUES
from tests.support.walked import walk

pytestmark = pytest.mark.both_databases


@pytest.fixture
def measured(api, make_result):
    """Eight timed runs of two schedulers at two numbers of threads, and two queued runs of another experiment."""
    axes = {"scheduler": ["fork-join", "task"], "threads": [1, 2]}
    api.submit(axes=axes, repetitions=2, name="Which scheduler?", tags=["night", "nightly:2"],
               base={"model": "tiny", "batch": 4, "seq": 64, "steps": 3})  # fmt: skip
    node = api.worker()
    for _ in range(8):
        lease = node.claim()
        spec = lease["spec"]
        step_s = (0.1 if spec["scheduler"] == "task" else 0.3) / spec["threads"]
        node.upload(lease, make_result([9.0, step_s, step_s]))
    api.submit(axes={"lr": [1, 0.001]}, name="Zweite Ärztin", base={"batch": 4, "seq": 32, "token_slice": 16})
    api.sql("UPDATE run SET flagged_steps = 2 WHERE id IN (1, 6)")
    return api.get("/runs", limit=500)["items"]


def less(run, than):
    return run["median_step_s"] is not None and run["median_step_s"] < than


RUNS = {
    "median_step_s < 0.1": lambda run: less(run, 0.1),
    "median_step_s < 0.2 and scheduler = task": lambda run: less(run, 0.2) and run["settings"]["scheduler"] == "task",
    "not median_step_s < 0.1": lambda run: run["median_step_s"] is not None and not less(run, 0.1),
    "median_step_s = null": lambda run: run["median_step_s"] is None,
    "median_step_s != null and threads in (2, 3)":
        lambda run: run["median_step_s"] is not None and run["settings"]["threads"] == 2,
    "threads > 1 or flagged_steps >= 1": lambda run: run["settings"]["threads"] > 1 or run["flagged_steps"],
    "threads >= 1 and threads < 2": lambda run: run["settings"]["threads"] == 1,
    "scheduler != task": lambda run: run["settings"]["scheduler"] != "task",
    "model = tiny and node = node-of-w1": lambda run: run["node"] == "node-of-w1",
    "node ~ OF-W": lambda run: run["node"] is not None,
    "lr < 0.01 and lr > 0.0005": lambda run: run["variant"].get("lr") == 0.001,
    "lr = 1.0": lambda run: run["variant"].get("lr") == 1,
    "token_slice = null": lambda run: run["experiment_id"] == 1,
    "token_slice != null": lambda run: run["experiment_id"] == 2,
    "tag = night": lambda run: run["experiment_id"] == 1,
    "tag = night and tag = nightly:2": lambda run: run["experiment_id"] == 1,
    "tag ~ LY:": lambda run: run["experiment_id"] == 1,
    "not tag in (night)": lambda run: run["experiment_id"] == 2,
    "created_at >= 1h and state in (queued, failed)": lambda run: run["state"] == "queued",
    "forward_s < 100": lambda run: run["median_step_s"] is not None,
    "data ~ lib": lambda run: True,  # noqa: ARG005
    "nesterov = false and id <= 3": lambda run: run["id"] <= 3,
}  # fmt: skip


def test_a_filter_selects_what_a_scan_selects(api, measured, monkeypatch):
    monkeypatch.setattr(keyset, "WINDOW", 6)
    for text, belongs in RUNS.items():
        wanted = [run["id"] for run in measured if belongs(run)]
        assert wanted, text
        assert walk(api, "/runs", filter=text, limit=4) == wanted, text


def test_several_filters_must_all_match_and_exports_take_them(api, measured):
    wanted = [run["id"] for run in measured if less(run, 0.2) and run["settings"]["threads"] == 2]
    both = ["median_step_s < 0.2", "threads = 2"]
    assert walk(api, "/runs", filter=both) == wanted
    rows = api.http.get("/api/v1/exports/runs", params={"filter": both, "columns": "run_id"}).text.split()
    assert [int(row) for row in rows[1:]] == wanted


EXPERIMENTS = {
    "name ~ SCHEDULER": [1],
    "name ~ Ärzt": [2],
    "name = 'Which scheduler?'": [1],
    "group = null": [2, 1],
    "scheduler = task": [2, 1],  # task is the default
    "scheduler = fork-join": [1],
    "median_step_s < 0.1 and scheduler = task and threads = 2": [1],
    "median_step_s < 0.1 and scheduler = fork-join": [],  # such runs exist, but not one with both
    "state = active and lr = 1": [2],
    "not tag = night": [2],
    "runs > 2 or name = 'Zweite Ärztin'": [2, 1],
    "verdict = null": [2, 1],
}


def test_experiments_are_found_by_their_runs(api, measured):  # noqa: ARG001
    for text, wanted in EXPERIMENTS.items():
        assert walk(api, "/experiments", filter=text, limit=1) == wanted, text
    api.sql("""UPDATE experiment SET verdict = '{"sentence": "", "verdict": "faster", "ratio": 1.5}' WHERE id = 1""")
    assert walk(api, "/experiments", filter="verdict in (faster, same) and ratio > 1.2") == [1]


def test_series_are_found(api, measured):  # noqa: ARG001
    found = api.get("/analysis/history/series", filter="scheduler = task and runs >= 2")["items"]
    assert found
    assert {series["config"]["scheduler"] for series in found} == {"task"}


WRONG = [
    ("/runs", "medain_step_s < 1", "did you mean 'median_step_s'?"),
    ("/runs", "cheese = 1", "names are id, experiment_id, state"),
    ("/runs", "scheduler = tusk", "scheduler: one of serial"),
    ("/runs", "scheduler = tusk", "did you mean 'task'?"),
    ("/runs", "scheduler < task", "scheduler takes = != in, not <"),
    ("/runs", "threads = task", "threads: a number, not 'task'"),
    ("/runs", "threads = 1.5", "threads: an integer, not 1.5"),
    ("/runs", "threads = 0", "threads: an integer from 1 to"),
    ("/runs", "threads = 1 and threads = 2", "threads in (A, B)"),
    ("/runs", "median_step_s < fast", "median_step_s: a number of seconds, not 'fast'"),
    ("/runs", "median_step_s < 100ms", "median_step_s: a number of seconds, not '100ms'"),
    ("/runs", "tokens_per_s > 1k", "tokens_per_s: a number, not '1k'"),
    ("/experiments", "group = vision", "group: a stored value, which 'vision' is not: there is none"),
    ("/runs", "median_step_s < NaN", "a number"),
    ("/runs", "id < " + "9" * 30, "a number"),
    ("/runs", "id < " + "9" * 1900, "a number"),
    ("/runs", "lr > -" + "9" * 1900, "a number"),
    ("/runs", 'op_threads = {"qkv":' + "9" * 1900 + "}", "op_threads: op=threads pairs"),
    ("/runs", "cores = [" + "9" * 1900 + "]", "cores: core numbers"),
    ("/runs", "node = nowhere", "node: a stored value, which 'nowhere' is not: n1, node-of-w1"),
    ("/runs", r'node ~ "\ud800"', "node: text without"),
    ("/experiments", r'name = "\u0000"', "name: text without"),
    ("/runs", "tag = day", "tag: a stored value, which 'day' is not: night, nightly:2"),
    ("/runs", "model = gpt9", "model: a stored value"),
    ("/runs", "data = cheese", "data: a stored value, which 'cheese' is not: stdlib"),
    ("/runs", "state = null", "state is never null"),
    ("/runs", "created_at >= yesterday", "created_at: an instant such as"),
    ("/runs", "op_threads = qkv", "op_threads: JSON"),
    ("/experiments", "verdict = good", "verdict: one of faster, slower"),
    ("/experiments", "submitter = key:9", "submitter: a stored value"),
    ("/analysis/history/series", "median_step_s < 1", "there is no 'median_step_s'"),
]


def test_what_does_not_exist_is_an_error_that_names_what_does(api, measured):  # noqa: ARG001
    for path, text, said in WRONG:
        problem = api.get(path, 422, filter=text)
        (error,) = problem["errors"]
        assert (problem["type"], error["field"], error["value"]) == ("/problems/invalid-request", "filter", text)
        assert said in error["accepted"], text


def test_the_largest_filters_are_answered_and_larger_ones_refused(api, measured):  # noqa: ARG001
    """SQLite refuses conditions that nest deeper than 1,000; queries of stored values are not repeated."""
    executed: list[str] = []
    event.listen(api.context.database.engine, "before_cursor_execute", lambda *given: executed.append(given[2]))
    ten = "data = stdlib or " * 9 + "data = stdlib"
    for largest in ([f"threads in ({', '.join(['1'] * MOST_VALUES)})"], [ten] * (MOST_VALUES // 10)):
        for path in ("/runs", "/experiments", "/analysis/history/series"):
            executed.clear()
            assert api.get(path, filter=largest)["items"]
            assert len(executed) < 50, path
            problem = api.get(path, 422, filter=[*largest[:-1], f"{largest[-1]} or threads = 1"])
            assert f"at most {MOST_VALUES} values in all" in problem["errors"][0]["accepted"]


VALUES = {"integer": "1", "number": "0.5", "boolean": "true", "instant": "7d", "json": "null", "text": "x"}


def test_every_name_takes_its_operators(api, measured):  # noqa: ARG001
    for of, path in (("runs", "/runs"), ("experiments", "/experiments"), ("series", "/analysis/history/series")):
        for name in api.get(f"/filters/{of}")["items"]:
            value = name["choices"][0] if name["choices"] else VALUES[name["kind"]]
            operators = name["operators"] if value != "x" else ("~",)
            each = [f"{name['name']} {sign} {f'({value})' if sign == 'in' else value}" for sign in operators]
            for text in {each[0], " or ".join(each)}:
                api.get(path, filter=text, limit=1)
