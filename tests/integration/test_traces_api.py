"""Traces over HTTP for viewers equal those of `taskloom runs trace`. They are streamed, limited and computed once."""

import copy
import gzip
import io
import json
import zipfile

import pytest
from click.testing import CliRunner

from taskloom.analysis import chrome, paraver
from taskloom.analysis.trace import trace_of
from taskloom.cli import main
from taskloom.server.read.analysis import reading
from tests.support.trace_checks import check_chrome, check_paraver
from tests.support.trace_example import FOUND

API = "/api/v1/runs/1/trace"


def leave(node, make_result, content):
    """Time a run, then trace it and store `content` as its trace."""
    node.upload(node.claim(), make_result())
    lease = node.claim()
    node.leave(lease, "trace.json.gz", content, "application/gzip")
    node.upload(lease, make_result())


def packed(found):
    return gzip.compress(json.dumps(found).encode())


@pytest.fixture
def traced(api, make_result):
    """Two runs with traces, the second with steps twice as long, and a run without a trace."""
    api.submit(base={"model": "tiny", "seq": 16}, repetitions=2, order="sequential", trace=True)
    api.submit(base={"model": "tiny"})
    node = api.worker()
    slow = copy.deepcopy(FOUND)
    slow["step_end_ns"] = [20_000, 41_000]
    leave(node, make_result, packed(FOUND))
    leave(node, make_result, packed(slow))
    return api


def expected(*found):
    traces = [trace_of(each) for each in found]
    return "".join(chrome.chrome([(f"run {i}: {each.title}", each) for i, each in enumerate(traces, 1)]))


@pytest.mark.both_databases
def test_a_chrome_trace_is_that_of_the_command_line(traced):
    answer = traced.http.get(API)
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["content-disposition"] == 'attachment; filename="run-1-trace.json"'
    assert (answer.headers["content-encoding"], answer.headers["vary"]) == ("gzip", "Accept-Encoding")
    assert check_chrome(answer.text)
    assert answer.text == expected(FOUND)
    plain = traced.http.get(API, headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert (plain.content, plain.headers["etag"]) == (answer.content, answer.headers["etag"])
    known = traced.http.get(API, headers={"If-None-Match": answer.headers["etag"]})
    assert (known.status_code, known.content) == (304, b"")


def test_two_runs_are_in_one_file_with_their_steps_aligned(traced):
    answer = traced.http.get(API, params={"beside": 2})
    assert answer.headers["content-disposition"].endswith('"run-1-2-trace.json"')
    steps: dict[int, list[float]] = {}
    for event in check_chrome(answer.text):
        if event["ph"] == "X" and event["cat"] == "step":
            steps.setdefault(event["pid"], []).append(event["ts"])
    assert steps[1] == steps[2] == [0.0, 20.0]
    refused = traced.get("/runs/1/trace", 422, format="paraver", beside=2)
    assert refused["errors"][0]["field"] == "beside"


def test_a_paraver_trace_has_its_three_files(traced):
    answer = traced.http.get(API, params={"format": "paraver"})
    assert answer.headers["content-type"] == "application/zip"
    assert answer.headers["content-disposition"] == 'attachment; filename="run-1-trace.zip"'
    assert "content-encoding" not in answer.headers
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.testzip() is None
        assert archive.namelist() == ["run-1.prv", "run-1.pcf", "run-1.row"]
        texts = {name: archive.read(name).decode() for name in archive.namelist()}
    check_paraver(texts["run-1.prv"])
    assert texts["run-1.pcf"] == paraver.pcf(trace_of(FOUND))
    assert texts["run-1.row"] == paraver.row(trace_of(FOUND))


def test_what_was_not_traced_says_how_to_have_it_traced(traced):
    assert traced.get("/runs/3/trace", 404)["detail"] == "run 3 was not traced: submit it with `trace`"
    assert traced.get("/runs/9/trace", 404)["detail"] == "there is no run 9"
    assert traced.get("/runs/1/trace", 404, beside=3)["detail"].startswith("run 3 was not traced")


def test_the_command_names_the_traced_runs_beside_one_that_was_not(api, make_result, tmp_path):
    """With --trace-first only those of the first repetition are."""
    api.submit(base={"model": "tiny", "seq": 16}, repetitions=2, order="sequential", trace="first")
    node = api.worker()
    leave(node, make_result, packed(FOUND))
    asked = ["runs", "trace", "2", "-o", str(tmp_path / "t.json"), "--server", str(api.http.base_url)]
    done = CliRunner().invoke(main, asked)
    said = "run 2 was not traced: submit it with --trace, or --trace-first; traced runs of its experiment: 1"
    assert (done.exit_code, done.stderr.strip()) == (2, f"error: {said}")


@pytest.mark.parametrize(
    "content", [b"garbled", packed({**FOUND, "schema": "other"}), packed([1])], ids=["no gzip", "schema", "no object"]
)
def test_a_trace_that_cannot_be_read_is_a_problem_and_the_artifact_is_there(api, make_result, content):
    api.submit(trace=True)
    leave(api.worker(), make_result, content)
    assert api.get("/runs/1/trace", 422)["type"] == "/problems/unreadable-trace"
    assert api.http.get("/api/v1/runs/1/artifacts/trace.json.gz").content == content


def test_a_trace_that_is_too_large_is_not_read(traced, monkeypatch):
    monkeypatch.setattr(reading, "MOST_TRACE_BYTES", 100)
    problem = traced.get("/runs/1/trace", 422)
    assert problem["type"] == "/problems/unreadable-trace"
    assert "the limit for a timeline is 100" in problem["detail"]


@pytest.mark.usefixtures("traced")
def test_it_is_made_in_a_process_of_its_own_and_kept(start_server):
    apart = start_server(analysis_processes=1)
    assert apart.http.get(API).text == expected(FOUND)
    assert apart.http.get(API, params={"format": "paraver"}).status_code == 200
