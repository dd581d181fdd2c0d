"""Settings that the trainer chose, in runs, variants, exports and filters."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from taskloom.cli import main

pytestmark = pytest.mark.both_databases
OP = {"op": "qkv", "phase": "forward", "calls": 1, "time_s": 0.1, "flop": 1000, "bytes": 1000}
CHOSEN = {"batch_slice": 2, "token_slice": 16, "fusion": "rows", "blas": "mkl own"}
NONE = dict.fromkeys(f"resolved_{name}" for name in CHOSEN)


@pytest.fixture
def measured(api, make_result):
    """Two runs of each of two variants: of fork-join, a run with two libraries and one with another; of task, a run
    that failed and a queued one."""
    base = {"model": "tiny", "batch": 4, "seq": 32, "steps": 4, "warmup": 1}
    api.submit(base=base, axes={"scheduler": ["fork-join", "task"]}, repetitions=2, order="sequential")
    node = api.worker()
    for libraries in (("own/768", "", "mkl"), ("openblas",)):
        result = make_result(fusion="rows", batch_slice=2, token_slice=16)
        node.upload(node.claim(), {**result, "ops": [{**OP, "blas": name} for name in libraries]})
    node.upload(node.claim(), error={"slug": "boom"})
    return api


def exported(api, table, **query):
    answer = api.http.get(f"/api/v1/exports/{table}", params={"format": "ndjson", **query}).raise_for_status()
    rows = [json.loads(line) for line in answer.text.splitlines()]
    return [{name: value for name, value in row.items() if name.startswith("resolved_")} for row in rows]


def columns(of):
    return {f"resolved_{name}": value for name, value in of.items()}


def test_runs_state_what_the_trainer_chose(measured):
    rows = measured.runs(1)
    other = {**CHOSEN, "blas": "openblas"}
    assert [row["resolved"] for row in rows] == [CHOSEN, other, None, None]
    assert [row["settings"]["token_slice"] for row in rows] == [None] * 4
    assert measured.get("/runs/1")["resolved"] == CHOSEN
    assert exported(measured, "runs") == [columns(CHOSEN), columns(other), NONE, NONE]


def test_a_variant_states_only_what_its_runs_agree_in(measured):
    both = {**CHOSEN, "blas": None}
    assert [row["resolved"] for row in measured.get("/experiments/1/variants")["rows"]] == [both, None]
    assert exported(measured, "variants") == [columns(both), NONE]


def test_runs_are_filtered_and_listed_by_what_the_trainer_chose(measured):
    def found(text):
        return [row["id"] for row in measured.get("/runs", filter=text)["items"]]

    assert found("resolved_token_slice = 16 and resolved_blas ~ own") == [1]
    assert found("resolved_fusion = rows and resolved_batch_slice < 3") == [1, 2]
    assert found("resolved_fusion = null") == [3, 4]
    asked = ["runs", "list", "--experiment", "1", "--columns", "id,resolved_blas", "--json"]
    done = CliRunner().invoke(main, [*asked, "--server", str(measured.http.base_url).rstrip("/")])
    libraries = ("mkl own", "openblas", None, None)
    assert json.loads(done.output) == [{"id": i, "resolved_blas": name} for i, name in enumerate(libraries, 1)]


def test_a_library_that_is_no_text_is_refused(api, make_result):
    api.submit()
    node = api.worker()
    lease = node.claim()
    result = node.answering(lease, make_result())
    problem = node.upload(lease, {**result, "ops": [{**OP, "blas": 7}]}, status=422)
    assert "`result.ops.0.blas`" in problem["detail"]
