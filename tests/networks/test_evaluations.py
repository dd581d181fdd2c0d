"""Evaluations between the steps of a training run: their numbers, and that they change none of its bits and records."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import threading
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from gpt2core.measure import counters
from gpt2core.networks.memory import memory_bytes, plan
from gpt2core.networks.network import network_of
from gpt2core.run import prepare, train
from gpt2core.run.execute import pieces
from gpt2core.run.report import Report
from gpt2core.spec.beside import step_beside
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import Cancelled, ConfigError
from gpt2core.spec.result import TrainResult
from gpt2core.spec.series import without_new
from gpt2core.step.memory import Memory
from taskloom.contract.attempts import Lease
from taskloom.server.errors import BadResult
from taskloom.server.queue.attempts import payload
from taskloom.server.queue.runs.details import sample_rows
from taskloom.worker.agent import Agent
from tests.support.networks import resnets
from tests.support.present import present

EVERY_2 = {"steps": 5, "warmup": 1, "evaluate_every": 2, "val_samples": 7}
HOW: list[dict[str, Any]] = [
    {},
    {"scheduler": "fork-join", "threads": 2},
    {"scheduler": "task", "threads": 3, "sync": "none"},
    {"scheduler": "task", "threads": 2, "fusion": "none"},
]
pytestmark = pytest.mark.usefixtures("no_canary")


@pytest.fixture(scope="module")
def evaluated() -> TrainResult:
    return train.train(resnets.config(**EVERY_2))


def inferred(checkpoint: str, images: int) -> TrainResult:
    """Scores of single images for validation, in their order."""
    given = {name: value for name, value in resnets.COMMON.items() if name not in ("lr", "weight_decay")}
    how = {"mode": "infer", "score": True, "split": "val", "shuffle": "none", "val_samples": images, "steps": images,
           "batch": 1, "batch_slice": 1, "checkpoint": checkpoint}  # fmt: skip
    return train.train(TrainConfig.from_dict({**given, **how}))


def test_an_evaluation_has_the_loss_and_accuracy_of_all_images(tmp_path: Any) -> None:
    """A batch of 5 does not divide 7 images; inference of one image at a time gives the same numbers."""
    path = str(tmp_path / "after.safetensors")
    result = train.train(resnets.config(**{**EVERY_2, "steps": 4}, save=path))
    assert [each["step"] for each in result.evaluations] == [2, 4]
    single = inferred(path, 7)
    assert result.evaluations[1]["loss"] == pytest.approx(np.mean(single.losses), rel=1e-5)
    assert result.evaluations[1]["accuracy"] == np.mean(single.accuracy)
    assert result.evaluations[0]["loss"] != result.evaluations[1]["loss"]


@pytest.mark.parametrize("how", HOW, ids=str)
def test_bits_of_training_and_evaluations_are_those_of_every_scheduler(how: dict[str, Any], evaluated) -> None:
    plain = train.train(resnets.config(steps=5, warmup=1, **how))
    result = train.train(resnets.config(**EVERY_2, **how))
    assert (result.losses, result.weights_sha256, result.accuracy) == (
        plain.losses, plain.weights_sha256, plain.accuracy,
    )  # fmt: skip
    assert result.evaluations == evaluated.evaluations
    assert plain.evaluations == []


def test_records_have_every_timed_step_once(evaluated: TrainResult) -> None:
    for values in evaluated.validity["steps"].values():
        assert values is None or (len(values) == 5 and values[0] is None and None not in values[1:])
    steps = evaluated.validity["steps"]["minor_faults"]
    assert steps is None or min(steps[1:]) >= 0  # each part has threads of its own, whose counts begin at 0
    for thread in evaluated.threads:
        assert thread.useful_s + (thread.scheduling_s or 0) + thread.waiting_s + thread.idle_s == pytest.approx(
            sum(evaluated.step_s[1:])
        )
    for step in range(5):
        assert sum(spans[step] for spans in evaluated.phase_s.values()) == pytest.approx(evaluated.step_s[step])


def test_a_trace_has_no_gap_where_an_evaluation_was(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    kept: list[Report] = []
    monkeypatch.setattr(train, "Report", lambda measured: kept.append(Report(measured)) or kept[0])
    config = resnets.config(**EVERY_2, scheduler="fork-join", threads=2, trace=str(tmp_path / "trace.json"))
    result = train.train(config)
    found = kept[0].trace(dict(result.environment))
    ends, timed_ns = found["step_end_ns"], [1e9 * seconds for seconds in result.step_s[1:]]
    np.testing.assert_allclose(np.diff([0, *ends]), timed_ns, atol=2)
    assert [(each.first, each.end) for each in kept[0].measured.timed] == [(1, 2), (2, 4), (4, 5)]
    for thread in found["threads"]:
        at = np.cumsum(np.array(thread["gap_ns"]) + np.array([0, *thread["duration_ns"][:-1]]))
        for what, step, begin, length in zip(thread["what"], thread["step"], at, thread["duration_ns"], strict=True):
            if what >= 0:
                assert begin >= [0, *ends][step - 1] - 2
                assert begin + length <= ends[step - 1] + 2


@pytest.mark.parametrize("how", [{}, {"threads": 3, "scheduler": "task"}, {"split": "train"}, {"fusion": "none"}])
def test_the_memory_is_known_beforehand(how: dict[str, Any]) -> None:
    config = resnets.config(**EVERY_2, **how)
    planned = prepare.plan(config)
    arenas = Memory(plan(config)).arenas
    assert planned.memory_bytes == memory_bytes(config) == {kind: arena.nbytes for kind, arena in arenas.items()}
    assert planned.beside is not None
    plain = memory_bytes(dataclasses.replace(config, evaluate_every=0, split=None))
    own = planned.beside.memory_bytes
    grown = {kind: planned.memory_bytes[kind] - plain[kind] for kind in plain}
    assert grown == {**dict.fromkeys(plain, 0), "temporary": own["temporary"]}
    assert own["activations"] < plain["activations"]


def test_the_split_may_be_another_one() -> None:
    config = resnets.config(steps=1, evaluate_every=1, split="train", val_samples=3)
    data = network_of(config).data(config)
    assert set(data["evaluated"]) == set(data["order"])
    assert present(step_beside(config)).split == "train"


def test_a_run_that_is_cancelled_ends_within_its_evaluation() -> None:
    stop = threading.Event()

    def emit(event: dict[str, Any]) -> None:
        if event["event"] == "step" and event["step"] == 2:
            stop.set()

    with pytest.raises(Cancelled, match="cancelled after 2 steps"):
        train.train(resnets.config(**EVERY_2), emit, stop)


def test_events_have_every_step() -> None:
    """Also those that are shorter than the period in which steps are reported."""
    events: list[dict[str, Any]] = []
    result = train.train(resnets.config(steps=40, evaluate_every=20, val_samples=7), events.append)
    steps = [event for event in events if event["event"] == "step"]
    assert {20, 40} <= {event["step"] for event in steps}
    for name, of_result in (("loss", result.losses), ("accuracy", result.accuracy)):
        assert [each for event in steps for each in (*event.get("earlier", {}).get(name, []), event[name])] == of_result
    assert sum(1 + len(event.get("earlier", {}).get("step_s", [])) for event in steps) == 40


def test_a_worker_sends_them_with_their_steps_while_the_run_goes_on() -> None:
    agent, at = Agent("finish"), datetime(2026, 1, 1, tzinfo=UTC)
    config, sent = resnets.config(steps=4, evaluate_every=2, val_samples=7), []
    agent.claim(Lease(
        attempt_id=1, attempt_no=1, run_id=1, experiment_id=1, spec=config.to_dict(), lease_s=60, heartbeat_s=15,
        expires_at=at, deadline_at=at, deadline_s=3600,
    ))  # fmt: skip

    def emit(event: dict[str, Any]) -> None:
        agent.note(event)
        found = agent.steps.next()
        if found is not None:
            sent.append((event["event"], found.first + len(found.step_s) - 1, found.evaluation_loss))

    result = train.train(config, emit)
    of = [each["loss"] for each in result.evaluations]
    assert next(each for each in sent if each[2]) == ("evaluation", 2, [None, of[0]])
    last = agent.steps.next()
    assert last is not None
    assert (last.evaluation_loss, last.evaluation_accuracy) == (
        [None, of[0], None, of[1]], [None, result.evaluations[0]["accuracy"], None, result.evaluations[1]["accuracy"]],
    )  # fmt: skip


def test_a_server_accepts_them_and_shows_them_with_their_steps(evaluated: TrainResult) -> None:
    def checked(evaluations: object) -> payload.Payload:
        text = json.dumps({"result": {**evaluated.to_dict(), "evaluations": evaluations}, "error": None})
        return payload.check(text, hashlib.sha256(text.encode()).hexdigest(), "succeeded", evaluated.config)

    assert checked(evaluated.evaluations).result
    rows = sample_rows(evaluated.to_dict())
    assert [row.evaluation_accuracy is not None for row in rows] == [False, True, False, True, False]
    assert rows[3].evaluation_loss == evaluated.evaluations[1]["loss"]
    for wrong in ([], evaluated.evaluations[:1], [{"step": 2, "loss": 1.0, "accuracy": 1.5}]):
        with pytest.raises(BadResult, match="evaluations"):
            checked(wrong)


@pytest.mark.parametrize(
    ("settings", "field", "accepted"),
    [
        ({"evaluate_every": 11, "val_samples": 7}, "evaluate_every", r"at most steps \(10\)"),
        ({"evaluate_every": -1}, "evaluate_every", "from 0 to"),
        ({"evaluate_every": 2}, "val_samples", "1 or more, which split val reads"),
        ({"evaluate_every": 2, "split": "test"}, "split", "synthetic data has no test images"),
        ({"split": "val", "val_samples": 2}, "split", "the default None without evaluate_every"),
        ({"model": "tiny", "data": "stdlib", "evaluate_every": 2}, "evaluate_every", "network gpt2 does not"),
        ({"model": "lstm-tiny", "data": "stdlib", "evaluate_every": 2}, "evaluate_every", "network lstm does not"),
    ],
)  # fmt: skip
def test_settings_that_are_refused(settings: dict[str, Any], field: str, accepted: str) -> None:
    with pytest.raises(ConfigError, match=accepted) as raised:
        resnets.config(**settings)
    assert field in [each.field for each in (raised.value, *raised.value.others)]


def test_inference_refuses_them() -> None:
    with pytest.raises(ConfigError, match="mode infer updates no weight"):
        TrainConfig.from_dict({"model": "resnet", "mode": "infer", "evaluate_every": 2})


def test_earlier_workers_and_series_do_not_see_the_new_settings() -> None:
    assert not {"split", "evaluate_every"} & without_new(TrainConfig.from_dict({"model": "resnet"}).to_dict()).keys()


def test_steps_are_cut_after_each_multiple() -> None:
    assert list(pieces(0, 5, 0)) == [(0, 5)]
    assert list(pieces(3, 3, 2)) == []
    assert list(pieces(1, 7, 3)) == [(1, 3), (3, 6), (6, 7)]
    assert list(pieces(0, 4, 2)) == [(0, 2), (2, 4)]
    assert list(pieces(0, 2, 5)) == [(0, 2)]


def test_counters_of_several_parts_are_added() -> None:
    first = counters.added({}, {"cycles": 2, "instructions": None})
    assert first == {"cycles": 2, "instructions": None}
    assert counters.added(first, {"cycles": 3, "instructions": 4}) == {"cycles": 5, "instructions": None}
