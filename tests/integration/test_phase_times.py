"""Phases of a step whose begin was recorded late: by a thread that was preempted, while others worked on."""

from __future__ import annotations

import math

import pytest

from gpt2core.measure import tracing
from gpt2core.run import train
from gpt2core.run.report import Report
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.models import model_from

STEPS, LATE = 4, 2


@pytest.mark.parametrize("scheduler", ["serial", "fork-join", "task"])
def test_phases_add_up_to_a_step_whose_begin_was_recorded_late(
    monkeypatch: pytest.MonkeyPatch, scheduler: str
) -> None:
    kept: list[Report] = []
    monkeypatch.setattr(train, "Report", lambda measured: kept.append(Report(measured)) or kept[0])
    config = TrainConfig(
        model=model_from("tiny"), batch=2, seq=16, steps=STEPS, warmup=1, data="synthetic", scheduler=scheduler,
        sync="phase" if scheduler == "task" else "step",
    )  # fmt: skip
    train.train(config)
    measured = kept[0].measured
    data = kept[0].phases.index("data")
    measured.record.step_end[LATE - 1] = kept[0].cells()[:, LATE, 0, data, tracing.LAST].max() + 1
    spans, _ = kept[0].phase_times()
    step_s = measured.step_times(STEPS)
    for step in range(STEPS):
        assert min(times[step] for times in spans.values()) >= 0
        assert math.isclose(math.fsum(times[step] for times in spans.values()), step_s[step], rel_tol=1e-9)
    assert spans["data"][LATE] == 0
