"""Training and inference through server, worker and trainer."""

from __future__ import annotations

import json

import pytest

from taskloom import Client
from taskloom.analysis.report import page
from taskloom.contract.experiments import ExperimentRequest
from tests.support.processes import House
from tests.support.runs import SMALL, succeeded


@pytest.mark.slow
def test_an_experiment_on_both_modes_shows_memory_and_latency(home: House, client: Client) -> None:
    home.start_worker(None)
    body = {"base": {**SMALL, "threads": 1}, "axes": {"mode": ["train", "infer"]}}
    experiment = client.submit(ExperimentRequest.model_validate(body)).id
    succeeded(client, experiment, 2)
    found = [client.result(run.id) for run in client.runs(experiment)]
    results = {result["config"]["mode"]: result for result in found}
    assert set(results["infer"]["phase_s"]) == {"data", "forward"}
    assert results["infer"]["latency"]["p99_s"] == max(results["infer"]["step_s"][2:])
    for one in client.memory_growth(experiment):
        (here,) = [point for point in one.points if point.size == one.size]
        for mode, result in results.items():
            sizes = {name: size for name, size in result["memory_bytes"].items() if name != "peak_rss"}
            assert getattr(here, f"{mode}_bytes") == sum(sizes.values())
    points = {row.config.get("mode", "train"): next(iter(client.series_points(row.id))) for row in client.series()}
    assert points["infer"].latency_p99_s == results["infer"]["latency"]["p99_s"]
    assert points["infer"].model_dump()["backward_s"] is None


@pytest.mark.slow
def test_an_experiment_generates_tokens(home: House, client: Client) -> None:
    """Both networks, through server and worker; the memory of runs that generate has no batch and no length to grow."""
    home.start_worker(None)
    base = {"mode": "infer", "generate": 6, "prompt": "5,7", "temperature": 2.0, "threads": 1}
    body = {"base": base, "axes": {"model": ["tiny", "lstm-tiny"]}, "repetitions": 1}
    experiment = client.submit(ExperimentRequest.model_validate(body)).id
    succeeded(client, experiment, 2)
    for run in client.runs(experiment):
        result = client.result(run.id)
        assert len(result["tokens"]) == 6
        assert (len(result["step_s"]), result["time_to_first_token_s"] > 0) == (5, True)
    assert client.memory_growth(experiment) == []
    for row in client.memory(experiment):
        assert row.memory.exact
        assert (row.memory.per_sequence_bytes, row.memory.per_token_bytes) == ({}, {})
    for series in client.series():
        assert [point.time_to_first_token_s is not None for point in client.series_points(series.id)] == [True]
    assert "Memory by variant" in page(client.report(experiment))


@pytest.mark.slow
def test_an_experiment_varies_the_threads_of_sections(home: House, client: Client) -> None:
    """Tables of threads for ops are values of an axis, as text or as objects. No bit of the logits depends on them."""
    home.start_worker(None)
    base = {
        "model": "lstm-tiny", "batch": 2, "seq": 16, "steps": 4, "mode": "infer", "scheduler": "fork-join",
        "threads": 2, "batch_slice": 1, "token_slice": 8,
    }  # fmt: skip
    tables = [None, "recur*=1", {"logits": 1, "gates_in[0]": 1}]
    body = {"base": base, "axes": {"op_threads": tables}, "repetitions": 1}
    experiment = client.submit(ExperimentRequest.model_validate(body)).id
    succeeded(client, experiment, 3)
    results = [client.result(run.id) for run in client.runs(experiment)]
    found = {json.dumps(result["config"]["op_threads"]): result for result in results}
    assert set(found) == {"null", '{"recur*": 1}', '{"logits": 1, "gates_in[0]": 1}'}
    assert len({result["outputs_sha256"] for result in results}) == 1
    report = page(client.report(experiment))
    for name in ("default", "recur*=1", "logits=1,gates_in[0]=1"):
        assert f"op threads {name}" in report
