"""Experiments on several ranks, through server, worker and trainer."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from taskloom import Client, trace_files
from taskloom.analysis.messages import messages
from taskloom.analysis.rank_forecast import RankForecast
from taskloom.analysis.report import page
from taskloom.contract.experiments import ExperimentRequest
from tests.support.patience import until
from tests.support.present import present
from tests.support.processes import House, gone
from tests.support.runs import SMALL, ended, submit, training

BASE = {**SMALL, "batch": 4, "batch_slice": 1, "token_slice": 8, "fusion": "rows", "allow_oversubscription": True}
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_an_experiment_compares_schedulers_with_one_rank_and_with_two(
    home: House, client: Client, tmp_path: Path
) -> None:
    home.start_worker(None)
    axes = {"scheduler": ["fork-join", "task"], "ranks": [1, 2]}
    body = {"base": BASE, "axes": axes, "repetitions": 1, "trace": True}
    experiment = client.submit(ExperimentRequest.model_validate(body)).id
    until(lambda: client.experiment(experiment).state == "finished", "all runs and their traces", 500)
    results = [client.result(run.id) for run in client.runs(experiment)]
    losses = {ranks: [r["losses"] for r in results if r["config"]["ranks"] == ranks] for ranks in (1, 2)}
    assert losses[1][0] == losses[1][1]
    assert losses[2][0] == losses[2][1] == pytest.approx(losses[1][0], rel=1e-5)
    for result in results:
        ranks = result["config"]["ranks"]
        assert [each["rank"] for each in result.get("communication") or [{"rank": 0}]] == list(range(ranks))
        assert all(each["bytes_sent"] > 0 for rank in result.get("communication") or () for each in rank["exchanges"])
    report = client.report(experiment)
    assert not [mark for mark in report.marks if "mpi" in mark]
    check_forecast(report.forecast.ranks)
    assert "<h2>Forecast for more ranks</h2>" in page(report)
    assert "fork-join 1x8, 2 ranks, 1 thread" in page(report)
    assert "<h2>Communication</h2>" in page(report)
    assert [len(row.ranks) for row in report.communication] == [2, 2]
    assert report.conclusion.count("messages between ranks are in flight for") == 2
    for run in client.runs(experiment):
        client.download_artifact(run.id, trace_files.ARTIFACT, tmp_path / "trace.json.gz")
        trace, ranks = trace_files.read(tmp_path / "trace.json.gz"), run.variant["ranks"]
        assert len(trace.ranks) == ranks
        assert bool(list(messages(trace))) == (ranks > 1)
    for row in client.memory(experiment):
        assert row.memory.exact
        assert row.memory.with_batch[0].batch == 4 // (row.variant.variant.get("ranks") or 1)


def check_forecast(found: list[RankForecast]) -> None:
    """One of each scheduler, from its run of two ranks, with the measured steps of one and of two."""
    assert [each.source.scheduler for each in found] == ["fork-join", "task"]
    for each in found:
        assert each.latency_s > 0
        assert each.bytes_per_s > 0
        strong, weak = (curve.points for curve in each.curves)
        assert [point.ranks for point in strong[:2]] == [1, 2]
        assert all(present(point.measured_s) > 0 for point in strong[:2])
        assert strong[1].error == pytest.approx(strong[1].step_s / present(strong[1].measured_s) - 1)
        assert [point.batch for point in weak] == [2 * point.ranks for point in weak]
        assert each.worst_error == pytest.approx(max(abs(p.error) for p in strong if p.error is not None))
    assert found[0].curves[0].points[1].exposed_s > 0

@pytest.mark.parametrize("way", ["cancelled", "worker killed"])
def test_no_rank_outlives_its_run(home: House, client: Client, way: str) -> None:
    worker = home.start_worker(None)
    run = submit(client, **{**BASE, "steps": 1_000_000, "ranks": 2, "threads": 1})
    training(client, run)
    below = psutil.Process(worker.popen.pid).children(recursive=True)
    ranks = [each for each in below if "--ranks" in each.cmdline() and each.cmdline()[1:4] == ["-P", "-m", "gpt2core"]]
    assert len(ranks) == 2
    if way == "cancelled":
        client.cancel_run(run)
        assert ended(client, run).state == "cancelled"
    else:
        worker.popen.kill()
    for each in ranks:
        gone(each)
