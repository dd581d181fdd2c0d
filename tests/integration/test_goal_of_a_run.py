"""Runs that end at their goal: the same step and the same bits under every scheduler, and what the way there took."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from gpt2core.measure import energy
from gpt2core.node import openmp
from gpt2core.run import canary, train
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.goals import NOT_REACHED
from gpt2core.spec.result import TrainResult
from taskloom import train_tables
from taskloom.server.errors import BadResult
from taskloom.server.queue.attempts import payload
from tests.support.apart import processes

HERE = list(openmp.find())
BASE = {"model": "tiny", "batch": 2, "seq": 16, "steps": 12, "warmup": 2, "lr": 0.01, "data": "synthetic"}
IMAGES: dict[str, Any] = {
    "model": {"network": "resnet", "blocks": 1, "width": 4, "classes": 3, "side": 8}, "batch": 4, "steps": 12,
    "warmup": 2, "evaluate_every": 1, "val_samples": 2,
}  # fmt: skip
HOW: list[dict[str, Any]] = [
    {"scheduler": "serial"},
    {"scheduler": "fork-join", "threads": 2},
    {"scheduler": "task", "threads": 2, "sync": "phase"},
    {"scheduler": "task", "threads": 2, "sync": "none"},
]


@pytest.fixture(autouse=True, scope="module")
def no_canary() -> Iterator[None]:
    """Leave out the canary, which takes longer than these runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(canary, "UNAVAILABLE", "bits are compared, not times")
        yield


def run(**settings: Any) -> TrainResult:
    return train.train(TrainConfig.from_dict({**BASE, **settings, "allow_oversubscription": True}))


@pytest.fixture(scope="module")
def whole() -> TrainResult:
    """All steps, without a goal; its losses rise and fall."""
    return run()


@pytest.fixture(scope="module")
def aim(whole: TrainResult) -> tuple[int, float]:
    """A timed step that has the least loss so far, and a loss between it and the least before."""
    for step in range(4, len(whole.losses)):
        least = min(whole.losses[:step])
        if whole.losses[step] < least:
            return step + 1, (whole.losses[step] + least) / 2
    raise AssertionError("no later step has a lower loss")


@pytest.mark.parametrize("how", HOW, ids=lambda how: "-".join(map(str, how.values())))
def test_every_scheduler_ends_after_the_same_step_with_the_same_bits(
    whole: TrainResult, aim: tuple[int, float], how: dict[str, Any]
) -> None:
    steps, loss = aim
    found, short = run(stop_at={"loss": loss}, **how), run(steps=steps)
    assert found.goal is not None
    assert (found.goal["metric"], found.goal["value"], found.goal["reached"]) == ("loss", loss, True)
    assert found.goal["steps"] == steps == len(found.losses) == len(found.step_s) == len(found.flagged)
    assert list(found.losses) == list(whole.losses[:steps])
    assert found.weights_sha256 == short.weights_sha256
    assert found.goal["time_s"] == pytest.approx(sum(found.step_s))
    assert found.summary["timed_steps"] == steps - 2
    assert found.summary["final_loss"] == whole.losses[steps - 1]
    ops = {op.op: op.calls for op in found.ops}
    assert (ops["mean_loss"], ops["end_at_goal"]) == (steps - 2, steps - 2)
    assert all(len(spans) == steps for spans in (*found.phase_s.values(), *found.phase_busy_s.values()))


def steps_to(loss: float, how: dict[str, Any]) -> tuple[int | None, int]:
    """The steps to a goal, and those that ran."""
    found = run(stop_at={"loss": loss}, threads=2, **how)
    return (found.goal or {}).get("steps"), len(found.losses)


@pytest.mark.skipif(not HERE, reason="no OpenMP runtime on this node")
def test_openmp_runtimes_end_there_too(aim: tuple[int, float]) -> None:
    with processes() as apart:
        for how in ({"scheduler": "omp-for"}, {"scheduler": "omp-task", "sync": "none"}):
            assert apart("openmp", steps_to, aim[1], how) == (aim[0], aim[0])


def test_a_goal_reached_in_the_warmup_leaves_one_timed_step(whole: TrainResult) -> None:
    found = run(stop_at={"loss": whole.losses[0]}, threads=2, scheduler="task", sync="none")
    assert found.goal is not None
    assert (found.goal["steps"], len(found.losses), found.summary["timed_steps"]) == (1, 3, 1)
    assert found.goal["time_s"] == pytest.approx(found.step_s[0])


def test_a_goal_out_of_reach_is_said(whole: TrainResult) -> None:
    found = run(stop_at="loss=0.001", grad_accum=2)
    assert found.goal == {
        "metric": "loss", "value": 0.001, "reached": False, "steps": None, "time_s": None, "energy_j": None,
        "energy_missing": NOT_REACHED,
    }  # fmt: skip
    assert len(found.losses) == len(whole.losses)
    assert whole.goal is None


def test_a_goal_of_accuracy_ends_training_between_evaluations() -> None:
    whole = train.train(TrainConfig.from_dict(IMAGES))
    least = max(whole.accuracy)
    steps = next(number for number, each in enumerate(whole.accuracy, start=1) if each >= least)
    ran = max(steps, IMAGES["warmup"] + 1)
    for how in ({"scheduler": "serial"}, {"scheduler": "task", "sync": "none", "threads": 2}):
        aimed = {**IMAGES, **how, "stop_at": f"accuracy={least}", "allow_oversubscription": True}
        found = train.train(TrainConfig.from_dict(aimed))
        assert found.goal is not None
        assert (found.goal["metric"], found.goal["steps"], len(found.accuracy)) == ("accuracy", steps, ran)
        assert [each["step"] for each in found.evaluations] == list(range(1, ran + 1))


def test_energy_counts_from_the_first_step_to_the_goal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, aim: tuple[int, float]
) -> None:
    zone = tmp_path / "intel-rapl:0"
    zone.mkdir()
    for name, text in (("name", "package-0"), ("max_energy_range_uj", "1000000000"), ("energy_uj", "999000000")):
        (zone / name).write_text(text)
    monkeypatch.setattr(energy, "POWERCAP", tmp_path)

    def use_a_joule(event: dict[str, Any]) -> None:
        if event["event"] == "step" and event["step"] == 2:  # the end of the warm-up; the counter wraps around
            (zone / "energy_uj").write_text("2000000")

    found = train.train(TrainConfig.from_dict({**BASE, "stop_at": {"loss": aim[1]}}), emit=use_a_joule)
    assert found.goal is not None
    assert found.goal["energy_j"] is not None
    assert 0.0 <= found.goal["energy_j"] <= 3.0
    assert found.goal["energy_missing"] is None
    monkeypatch.setattr(energy, "POWERCAP", tmp_path / "none")
    unknown = run(stop_at={"loss": aim[1]}).goal or {}
    assert (unknown["energy_j"], "no RAPL" in unknown["energy_missing"]) == (None, True)


def checked(found: dict[str, Any], spec: dict[str, Any]) -> payload.Payload:
    text = json.dumps({"result": found, "error": None})
    return payload.check(text, hashlib.sha256(text.encode()).hexdigest(), "succeeded", spec)


def test_the_server_accepts_a_result_that_ends_at_its_goal_and_no_other(aim: tuple[int, float]) -> None:
    spec = TrainConfig.from_dict({**BASE, "stop_at": {"loss": aim[1]}, "allow_oversubscription": True}).to_dict()
    found = json.loads(json.dumps(run(stop_at={"loss": aim[1]}).to_dict()))
    assert checked(found, spec).result == found
    for wrong in (
        None, {**found["goal"], "steps": aim[0] - 1}, {**found["goal"], "value": 1.0},
        {**found["goal"], "reached": False},
    ):  # fmt: skip
        with pytest.raises(BadResult, match=r"result\.goal"):
            checked({**found, "goal": wrong}, spec)
    longer = {**found, "step_s": [*found["step_s"], 1.0]}
    with pytest.raises(BadResult, match=f"entries for {aim[0]} steps"):
        checked(longer, spec)


def test_the_table_says_what_the_way_took(aim: tuple[int, float]) -> None:
    for settings, text in (({"loss": aim[1]}, f"after {aim[0]} steps, "), ({"loss": 0.001}, "not reached in 12 steps")):
        written = io.StringIO()
        console = Console(file=written, width=120)
        for part in train_tables.result(run(stop_at=settings).to_dict()):
            console.print(part)
        assert "goal: loss at most" in written.getvalue()
        assert text in written.getvalue()
