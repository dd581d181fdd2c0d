"""Training and inference through server, worker and trainer."""

from __future__ import annotations

import pytest
from processes import House
from runs import SMALL, succeeded

from taskloom import Client
from taskloom.contract.experiments import ExperimentRequest


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
    assert points["infer"].backward_s is None
