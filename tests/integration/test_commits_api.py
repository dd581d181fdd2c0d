"""Commits as dimensions: the one that a submitter names, and the trainer's, in lists, exports and histories."""

from __future__ import annotations

import csv
import io
import itertools
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from click.testing import CliRunner

from taskloom import Client
from taskloom.cli import main

pytestmark = pytest.mark.both_databases
OLD, NEW = "1a2b3c4d" * 5, "9f8e7d6c" * 5
NAMED = {
    "commit": NEW, "branch": "feature/x", "dirty": True, "committed_at": "2026-11-22T11:00:00+01:00", "version": "1.2",
}  # fmt: skip
SHOWN = {**NAMED, "committed_at": "2026-11-22T10:00:00Z"}
CORE = {
    "core_version": "0.1.0+g1a2b3c4.d01234567", "core_commit": OLD, "core_branch": "main", "core_dirty": True,
    "core_committed_at": "2026-11-21T10:00:00+00:00",
}  # fmt: skip
TRAINER = {
    "trainer_version": "0.1.0+g1a2b3c4.d01234567", "trainer_commit": OLD, "trainer_branch": "main",
    "trainer_dirty": True, "trainer_committed_at": "2026-11-21T10:00:00Z",
}  # fmt: skip
NONE = dict.fromkeys(NAMED)
NOISE = (1.0, 1.004, 0.996, 1.002, 0.998, 1.006)


def only(row, names):
    return {name: row[name] for name in names}


@pytest.fixture
def measured(api, make_result):
    """Experiment 1 names a commit and has a result; experiment 2 names none and has a result of an earlier trainer."""
    api.submit(**NAMED)
    api.submit()
    node = api.worker()
    node.upload(node.claim(), make_result(environment=CORE))
    node.upload(node.claim(), make_result(environment={"core_version": "0.1.0+gabcdef0"}))
    return api


def compared(api, *arguments):
    url = str(api.http.base_url).rstrip("/")
    return CliRunner().invoke(main, ["compare", "--commit", *arguments, "--server", url])


def test_stored_runs_of_two_commits_are_compared(api, make_result):
    node = api.worker()
    for commit, level, settings in ((OLD, 1.0, 2), (NEW, 1.1, 1)):
        api.submit(commit=commit, axes={"threads": [1, 2][:settings]}, repetitions=6)
        for turn in range(6 * settings):
            lease = node.claim()
            step_s = level * NOISE[turn % 6] / lease["spec"]["threads"]
            node.upload(lease, make_result([9, step_s, step_s], threads=lease["spec"]["threads"], environment=CORE))
    mixed = compared(api, OLD[:7], NEW[:7])
    assert "refused: A mixes configurations: threads" in mixed.stdout
    done = compared(api, OLD[:7], NEW[:7], "--filter", "threads = 1")
    assert done.exit_code == 0, done.output
    assert f"A is commit {OLD[:7]}, B is commit {NEW[:7]}; their runs are not paired" in done.stdout
    assert done.stdout.splitlines()[-1].endswith(f": taskloom compare --commit {OLD[:7]} {NEW[:7]} --experiment FILE")
    found = json.loads(compared(api, OLD, NEW, "--filter", "threads = 1", "--json").stdout)
    runs = api.get("/runs", filter="threads = 1", limit=100)["items"]
    assert (found["paired"], found["verdict"]) == (False, "undecided")  # one occasion a side
    assert found["ratio"] == pytest.approx(1 / 1.1, rel=0.01)
    assert found["a"]["runs"] == [run["id"] for run in runs if run["commit"] == OLD]
    assert found["b"]["runs"] == [run["id"] for run in runs if run["commit"] == NEW]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((NEW, "0" * 40), f"no run that succeeded measured commit {'0' * 40}"),
        ((NEW, NEW, "--filter", "threads = 7"), f"no run that succeeded measured commit {NEW} and has threads = 7"),
        ((NEW, NEW, "--filter", "thraeds = 7"), "did you mean 'threads'"),
    ],
)
def test_a_commit_without_runs_is_named(measured, arguments, message):
    done = compared(measured, *arguments)
    assert done.exit_code in (2, 3)
    assert message in " ".join(done.output.split())


def test_the_trainers_commit_is_taken_where_no_submitter_named_it(measured):
    assert "share run 1" in compared(measured, OLD, NEW).stdout  # run 1 measured NEW with a trainer of OLD


def test_the_submitters_commit_and_the_trainers_are_shown(measured):
    first, second = measured.get("/experiments", sort="id")["items"]
    assert only(first, NAMED) == only(measured.get("/experiments/1"), NAMED) == SHOWN
    assert only(second, NAMED) == NONE
    run, earlier = measured.get("/runs")["items"]
    assert only(run, [*NAMED, *TRAINER]) == {**SHOWN, **TRAINER}
    assert only(measured.get("/runs/1"), [*NAMED, *TRAINER]) == {**SHOWN, **TRAINER}
    expected = {**dict.fromkeys(TRAINER), "trainer_version": "0.1.0+gabcdef0", "trainer_commit": "abcdef0"}
    assert only(earlier, [*NAMED, *TRAINER]) == {**NONE, **expected}


def test_a_submission_answers_its_commit_also_when_it_is_repeated(api):
    headers = {"Idempotency-Key": "once"}
    first, again = (api.submit(headers=headers, **NAMED) for _ in range(2))
    assert only(first, NAMED) == SHOWN
    assert again == first
    api.submit(409, headers=headers, **{**NAMED, "commit": OLD})


def test_experiments_and_runs_are_filtered_by_the_submitters_commit(measured):
    queries: list[tuple[dict[str, Any], list[int]]] = [
        ({"commit": NEW}, [1]), ({"commit": NEW[:7]}, [1]), ({"commit": NEW[:6]}, []), ({"commit": OLD}, []),
        ({"branch": "feature/x"}, [1]), ({"branch": "feature"}, []), ({"dirty": True}, [1]), ({"dirty": False}, []),
        ({"version": "1.2", "commit": NEW}, [1]), ({"commit": "%______"}, []),
    ]  # fmt: skip
    for path, (query, found) in itertools.product(("/experiments", "/runs"), queries):
        page = measured.get(path, total=True, **query)
        assert [row["id"] for row in page["items"]] == found, (path, query)
        assert page["total"] == (len(found) if path == "/experiments" else None)


def test_runs_are_filtered_by_the_trainers_commit(measured):
    queries: list[tuple[dict[str, Any], list[int]]] = [
        ({"trainer_commit": OLD}, [1]), ({"trainer_commit": OLD[:9]}, [1]), ({"trainer_commit": "abcdef0"}, [2]),
        ({"trainer_branch": "main"}, [1]), ({"trainer_dirty": True}, [1]), ({"trainer_dirty": False}, []),
        ({"trainer_version": "0.1.0+gabcdef0"}, [2]), ({"trainer_version": "0.1.0"}, []),
    ]  # fmt: skip
    for query, found in queries:
        assert [row["id"] for row in measured.get("/runs", **query)["items"]] == found, query


OF_NAMED = {
    f"commit = {NEW}": [1], f"commit = {NEW[:7]}": [1], "commit = null": [2],
    f"commit != {NEW[:7]}": [], f"not commit = {NEW}": [], "commit ~ 8E7D": [1], "branch = feature/x": [1],
    "branch ~ feat": [1], "dirty = true": [1], "dirty != true": [], "dirty = null": [2],
    "committed_at >= 2026-11-22T09:00:00Z and committed_at < 2026-11-22T10:00:01Z": [1],
    "committed_at < 2026-11-22T10:00:00Z": [], 'version = "1.2"': [1], "version = 1.2 and dirty = true": [1],
}  # fmt: skip
OF_TRAINERS = {
    f"trainer_commit = {OLD}": [1], f"trainer_commit = {OLD[:9]}": [1], "trainer_commit = abcdef0": [2],
    "trainer_commit = abcdef1": [], f"trainer_commit in ({OLD[:7]}, abcdef0)": [1, 2], "trainer_dirty = true": [1],
    "trainer_dirty = null": [2], "trainer_committed_at >= 2026-11-21T10:00:00Z": [1], "trainer_branch = main": [1],
    "trainer_version = 0.1.0+gabcdef0": [2], "trainer_version ~ .D01": [1],
    f"trainer_commit = {OLD[:7]} and commit = {NEW[:7]}": [1],
}  # fmt: skip


def test_expressions_know_both_commits(measured):
    for text, found in {**OF_NAMED, **OF_TRAINERS}.items():
        for path in ("/experiments", "/runs"):
            page = measured.get(path, filter=text, sort="id")
            assert [row["id"] for row in page["items"]] == found, (path, text)
    rows = measured.http.get("/api/v1/exports/runs", params={"filter": f"commit = {NEW[:7]}", "columns": "run_id"})
    assert rows.text.split() == ["run_id", "1"]


def test_a_commit_that_nobody_named_is_an_error_that_lists_those_that_are(measured):
    filters = [
        (f"commit = {OLD}", f"commit: a stored value, which '{OLD}' is not: {NEW}"),
        (f"commit = {NEW[:6]}", "commit: a stored value"), ("branch = feature", "did you mean 'feature/x'?"),
        ("version = 1", "version: a stored value"), ("committed_at < 7", "committed_at: an instant such as"),
        ("dirty = yes", "dirty: true or false, not 'yes'"), ("trainer_comit = x", "did you mean 'trainer_commit'?"),
    ]  # fmt: skip
    for path, (text, said) in itertools.product(("/experiments", "/runs"), filters):
        (error,) = measured.get(path, 422, filter=text)["errors"]
        assert said in error["accepted"]


@pytest.mark.parametrize(
    ("field", "value"),
    [("commit", "two words"), ("branch", ""), ("version", "a\tb"), ("dirty", "yes"), ("committed_at", 7),
     ("committed_at", "2026-11-22T10:00:00"), ("committed_at", "yesterday")],
)  # fmt: skip
def test_a_commit_that_is_none_is_refused_by_its_field(empty_api, field, value):
    (error,) = empty_api.submit(422, **{field: value})["errors"]
    assert (error["field"], error["value"]) == (field, value)


def test_a_result_cannot_say_nonsense_about_its_trainer(api, make_result):
    api.submit()
    node = api.worker()
    wrong = {"core_version": 7, "core_commit": ["x"], "core_branch": "b" * 300, "core_dirty": "no",
             "core_committed_at": "then"}  # fmt: skip
    node.upload(node.claim(), make_result(environment=wrong))
    (run,) = api.runs(1)
    assert only(run, TRAINER) == {**dict.fromkeys(TRAINER), "trainer_branch": "b" * 255}


def test_exports_and_frames_have_the_commits(measured):
    for table in ("runs", "history"):
        columns = ",".join((*NAMED, *TRAINER))
        text = measured.http.get(f"/api/v1/exports/{table}", params={"columns": columns}).text
        row, other = csv.DictReader(io.StringIO(text))
        assert (row["commit"], row["branch"], row["dirty"], row["trainer_commit"]) == (NEW, "feature/x", "True", OLD)
        assert (other["commit"], other["trainer_commit"]) == ("", "abcdef0")
        text = measured.http.get(f"/api/v1/exports/{table}", params={"columns": "run_id", "trainer_commit": OLD}).text
        assert text.split() == ["run_id", "1"]
    with Client(str(measured.http.base_url)) as client:
        frame = client.frame("runs", library="pandas", commit=NEW[:8])
    assert list(frame["run_id"]) == [1]
    assert frame["committed_at"][0] == datetime(2026, 11, 22, 10, tzinfo=UTC)
    assert frame["trainer_branch"][0] == "main"


def run_all(node, make_result, step_s, **environment):
    for s in step_s:
        result = make_result([9, s, s], environment=environment)
        node.upload(node.claim(), {**result, "compiled": 3, "canary": {"sha256": "c", "times_s": [0.02] * 4}})


@pytest.mark.parametrize("template", ["", "https://example.org/compare/{from}...{to}"])
def test_a_change_is_answered_by_its_range_of_commits(start_server, make_result, template):
    api = start_server(commits_url=template)
    node = api.worker()
    asked = {"base": {"token_slice": 64, "batch_slice": 1}, "repetitions": 6}
    api.submit(**asked)
    run_all(node, make_result, NOISE, core_hash="abc", core_commit=OLD)
    api.submit(**asked)
    run_all(node, make_result, [s * 1.1 for s in NOISE], core_hash="new", core_commit="a b/c", core_dirty=True)
    url = f"https://example.org/compare/{OLD}...a%20b%2Fc" if template else None
    wanted = {"last_before": OLD, "first_after": "a b/c", "of": "trainer", "dirty": True, "url": url}
    (series,) = api.get("/analysis/history")["items"]
    found = api.get("/analysis/history/series/1/changes")
    for answer in (series, found):
        assert [change["since"] for change in answer["changes"]] == [wanted]
        assert [alert["change"]["since"] for alert in answer["alerts"]] == [wanted]


def test_the_submitters_commits_count_before_the_trainers(api, make_result):
    node = api.worker()
    asked = {"base": {"token_slice": 64, "batch_slice": 1}, "repetitions": 6}
    for commit, level in ((OLD, 1.0), (NEW, 1.1)):
        api.submit(commit=commit, **asked)
        run_all(node, make_result, [s * level for s in NOISE], core_commit="same")
    (change,) = api.get("/analysis/history/series/1/changes")["changes"]
    assert change["since"] == {
        "last_before": OLD, "first_after": NEW, "of": "submitted", "dirty": False, "url": None
    }  # fmt: skip


def test_points_have_their_node_canary_memory_and_operation(api, make_result):
    api.submit(commit=NEW, repetitions=2)
    node = api.worker()
    run_all(node, make_result, [1.0, 1.1], core_commit=OLD)
    page = api.get("/analysis/history/series/1/points", op="qkv")
    assert page["ops"] == ["qkv"]
    for point in page["items"]:
        assert (point["node"], point["canary_s"], point["compiled"]) == ("node-of-w1", 0.02, 3)
        assert (point["commit"], point["trainer_commit"]) == (NEW, OLD)
        assert point["op_s"] == pytest.approx(point["median_step_s"])
    assert {point["op_s"] for point in api.get("/analysis/history/series/1/points", op="x")["items"]} == {None}


def test_a_template_without_both_commits_is_refused():
    from taskloom.server.errors import StartRefused
    from taskloom.server.settings import Settings

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TASKLOOM_COMMITS_URL", "https://example.org/{from}")
        with pytest.raises(StartRefused, match="TASKLOOM_COMMITS_URL"):
            Settings.read()
