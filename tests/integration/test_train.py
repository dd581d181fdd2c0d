"""A complete run in this process: its result and its errors."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import gzip
import itertools
import json
import subprocess
import threading
from typing import Any

import numpy as np
import pytest

from gpt2core.networks.gpt2 import initial
from gpt2core.networks.memory import memory_bytes
from gpt2core.networks.normal import LARGE, Normals
from gpt2core.process import launch
from gpt2core.run import execute, memory, prepare, train
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import Cancelled, ConfigError, NotEnoughMemory, NotFinite, ShapeMismatch
from gpt2core.spec.models import ModelConfig, model_from
from gpt2core.spec.phases import PHASES
from taskloom.analysis import chrome, paraver
from taskloom.analysis.profile import profile_of
from taskloom.analysis.trace import trace_of
from tests.support.trace_checks import check_chrome, check_paraver

SMALL = TrainConfig(
    model=model_from("tiny"), batch=4, seq=32, steps=8, warmup=2, token_slice=16, data="synthetic", threads=2
)


@pytest.mark.parametrize(
    ("scheduler", "sync", "threads"), [("serial", "step", 1), ("fork-join", "step", 2), ("task", "phase", 2)]
)
@pytest.mark.parametrize("grad_accum", [1, 3])
def test_where_phases_follow_each_other_they_add_up_to_the_step(scheduler, sync, threads, grad_accum):
    config = dataclasses.replace(SMALL, scheduler=scheduler, sync=sync, threads=threads, grad_accum=grad_accum)
    result = train.train(config)
    for step in range(SMALL.steps):
        total = sum(result.phase_s[phase][step] for phase in PHASES)
        assert total == pytest.approx(result.step_s[step], rel=0.01)
    for phase in PHASES if grad_accum > 1 else ():  # each phase runs by itself and contains its threads' work
        spans_s, busy_s = result.phase_s[phase], result.phase_busy_s[phase]
        assert min(busy_s) > 0
        # A thread that is preempted before it marks a phase's begin moves time into the phase before.
        assert sum(s < 0.99 * busy / threads for s, busy in zip(spans_s, busy_s, strict=True)) <= SMALL.steps // 4


def test_micro_batches_are_reported_as_one_step():
    config = dataclasses.replace(SMALL, grad_accum=3, grad_clip=0.5)
    events: list[dict[str, Any]] = []
    result = train.train(config, events.append)
    timed = SMALL.steps - 2
    tokens = 3 * config.batch * config.seq
    assert result.summary["tokens_per_s"] == pytest.approx(tokens * timed / sum(result.step_s[2:]))
    step = next(event for event in events if event["event"] == "step")
    assert step["tokens_per_s"] == pytest.approx(tokens / step["step_s"])
    assert len(result.gradient_norms) == SMALL.steps
    assert min(result.gradient_norms) > 0
    assert result.config["fusion"] == "rows"
    ops = {(op.op, op.phase): op for op in result.ops}
    assert ops["mean_loss", "loss"].calls == 3 * timed
    assert ops["clip", "update"].calls == timed
    assert ops["gradient_squares", "update"].calls == ops["adamw", "update"].calls
    assert not train.train(SMALL).gradient_norms


@pytest.mark.parametrize("scheduler", ["serial", "fork-join", "task"])
def test_the_report_is_whole_and_consistent(scheduler):
    config = dataclasses.replace(SMALL, scheduler=scheduler, threads=1 if scheduler == "serial" else 2)
    events: list[dict[str, Any]] = []
    result = train.train(config, events.append)
    assert len(result.losses) == len(result.step_s) == SMALL.steps
    assert json.loads(json.dumps(result.to_dict(), allow_nan=False))["schema"] == "taskloom.result/2"
    assert result.config["warmup"] == 2
    timed = SMALL.steps - 2
    calls = len(prepare.plan(config).program.calls)
    assert sum(op.calls for op in result.ops) == sum(t.calls for t in result.threads) == calls * timed
    useful = sum(t.useful_s for t in result.threads)
    assert useful == pytest.approx(sum(op.time_s for op in result.ops), rel=0.01)
    assert useful <= sum(result.step_s[2:]) * config.threads
    for thread, stat in enumerate(result.threads):
        assert stat.observed_cores == (stat.core,) == (result.config["cores"][thread],)
    sizes = memory_bytes(prepare.plan(config).config)
    assert {kind: result.memory_bytes[kind] for kind in sizes} == sizes
    assert result.memory_bytes["peak_rss"] > sum(sizes.values())
    assert result.resident_bytes["interpreter"] > 0
    assert result.summary["median_step_s"] == pytest.approx(float(np.median(result.step_s[2:])))
    low, high = result.summary["ci95_step_s"]
    assert low <= result.summary["median_step_s"] <= high
    kinds = [event["event"] for event in events]
    assert kinds[0] == "planned"
    assert events[-1]["step"] == SMALL.steps


def test_flop_is_what_the_documented_formula_says():
    """6 flop per parameter in matrix products and token, and attention: 12 L C T per token, half of it masked."""
    config = TrainConfig(model=model_from("gpt2-124m"), batch=4, seq=256, token_slice=256)
    model: Any = config.model
    products = model.layers * 12 * model.channels**2 + model.padded_vocab * model.channels
    tokens = config.batch * config.seq
    attention = 12 * model.layers * model.channels * config.seq * tokens
    wanted = 6 * products * tokens + attention * 7 / 12  # 4 forward + 10 backward, half of it causal
    planned = prepare.plan(config)
    matrix = sum(
        work.flop
        for _, _, call, work in planned.program.calls
        if call.name.split("_d")[0] in ("qkv", "projection", "fc", "fc_projection", "logits", "attention")
    )
    assert matrix == pytest.approx(wanted, rel=0.002)


@pytest.mark.parametrize("token_slice", [1, 3, 8, 10])
def test_the_flop_of_attention_count_every_pair_of_tokens_once(token_slice):
    """A pair of tokens takes two products of 2 C flop in the forward pass and five in the backward pass."""
    config = dataclasses.replace(SMALL, seq=10, batch_slice=1, token_slice=token_slice, steps=1, warmup=None)
    pairs = [(query, key) for query in range(config.seq) for key in range(query + 1)]
    model: Any = config.model
    of_a_layer = config.batch * model.channels
    found = {"forward": 0, "backward": 0}
    for _, _, call, work in prepare.plan(config).program.calls:
        if call.name == "attention":
            found[call.phase] += work.flop
    assert found["forward"] == model.layers * of_a_layer * 4 * len(pairs)
    assert found["backward"] == model.layers * of_a_layer * 10 * len(pairs)


def test_a_loss_that_is_not_finite_stops_the_run_with_its_step():
    with pytest.raises(NotFinite, match="the loss of step 3 is") as caught:
        train.train(dataclasses.replace(SMALL, steps=500, lr=1e5, seed=3))
    assert caught.value.fields()["step"] == 3


def test_a_norm_that_is_not_finite_stops_the_run_with_its_step(monkeypatch):
    """The last step is included, although no later loss would show the error."""
    monkeypatch.setattr(initial, "initial_weights", poisoned(initial.initial_weights))
    with pytest.raises(NotFinite, match="the gradient norm of step 1 is nan") as caught:
        train.train(dataclasses.replace(SMALL, steps=1, warmup=0, grad_clip=1.0))
    assert caught.value.fields() == {"step": 1, "gradient_norm": "nan"}


def poisoned(fill):
    """Initial weights with a finite loss and infinite gradients: a LayerNorm multiplies by 1e30."""

    def wrapped(model, seed, weights):
        fill(model, seed, weights)
        weights["ln2w"][:] = 1e30
        weights["fcprojw"][:] = 0

    return wrapped


@pytest.mark.parametrize("scheduler", ["fork-join", "task"])
def test_a_stop_ends_the_run_at_a_steps_end(scheduler):
    stop = threading.Event()
    config = dataclasses.replace(SMALL, steps=1_000_000, scheduler=scheduler)

    def emit(event: dict[str, Any]) -> None:
        if event["event"] == "step":
            stop.set()

    with pytest.raises(Cancelled, match=r"cancelled after \d+ steps") as caught:
        train.train(config, emit, stop)
    assert 0 < caught.value.step < 1_000_000


def test_a_model_that_does_not_fit_says_what_would():
    with pytest.raises(NotEnoughMemory) as caught:
        train.train(TrainConfig(model=model_from("gpt2-1.5b"), batch=4096, seq=1024, data="synthetic"))
    fields: dict[str, Any] = caught.value.fields()
    assert fields["needed_bytes"] > fields["available_bytes"]
    assert "would" in str(caught.value)
    assert str(fields["needed_bytes"]) in str(caught.value)


@pytest.mark.parametrize(
    ("just_fits", "advice"),
    [
        ({"batch": 2}, "batch 2 with seq 1024 would fit"),
        ({"batch": 1, "seq": 256}, "batch 1 with seq 256 would fit"),
        ({"batch": 1, "model": "gpt2-774m"}, "no batch of this model fits; gpt2-774m with batch 1 would"),
    ],
)
def test_what_would_fit_is_worked_out(just_fits, advice):
    asked = TrainConfig(model=model_from("gpt2-1.5b"), batch=64, seq=1024)
    available = sum(memory_bytes(dataclasses.replace(asked, **just_fits)).values())
    assert memory.what_fits(asked, available) == advice
    assert memory.what_fits(asked, available - 1) != advice
    assert memory.what_fits(asked, 0) == "neither this model nor a preset fits with batch 1"


def test_what_would_fit_is_a_batch_that_all_ranks_share():
    asked = TrainConfig(model=model_from("gpt2-1.5b"), batch=96, seq=1024, ranks=3)
    each = sum(memory_bytes(dataclasses.replace(asked, batch=6)).values())
    assert memory.what_fits(asked, each) == "batch 6 with seq 1024 would fit"
    assert memory.what_fits(asked, each - 1) == "batch 3 with seq 1024 would fit"
    with pytest.raises(NotEnoughMemory, match="would"):
        memory.check_fits(dataclasses.replace(asked, batch=3 << 16), 1 << 60, 3)


@pytest.mark.parametrize(
    ("change", "field"),
    [({"threads": 64}, "threads"), ({"cores": (4000,), "threads": 1}, "cores"), ({"save": "weights.txt"}, "save")],
)
def test_what_this_machine_cannot_do_is_refused_before_it_starts(change, field):
    with pytest.raises(ConfigError) as caught:
        train.train(dataclasses.replace(SMALL, **change))
    assert caught.value.field == field


def test_weights_are_saved_and_read_again(tmp_path):
    path = tmp_path / "model.bin"
    whole = train.train(dataclasses.replace(SMALL, steps=1, warmup=0, save=str(path)))
    again = train.train(dataclasses.replace(SMALL, steps=1, warmup=0, checkpoint=str(path), lr=0.0, save=str(path)))
    assert again.checkpoint == {"format": "llm.c", "dtype": "F32"}
    assert again.weights_sha256 == whole.weights_sha256
    with pytest.raises(ShapeMismatch, match="wte has shape"):
        train.train(dataclasses.replace(SMALL, model=ModelConfig(2, 4, 32, 256, 128), checkpoint=str(path)))


@pytest.mark.parametrize(
    ("scheduler", "sync", "threads"),
    [("serial", "step", 1), ("fork-join", "step", 2), ("task", "phase", 2), ("task", "none", 2)],
)
def test_a_trace_shows_what_the_result_reports(tmp_path, scheduler, sync, threads):
    """The trace has every timed task once. Spans by phase and by kind of waiting add up to the reported times. Both
    formats are valid."""
    config = dataclasses.replace(SMALL, trace=str(tmp_path / "trace.json.gz"), steps=12)
    result = train.train(dataclasses.replace(config, scheduler=scheduler, sync=sync, threads=threads))
    found = trace_of(json.loads(gzip.decompress((tmp_path / "trace.json.gz").read_bytes())))
    assert found.complete
    ran = [(span.what, span.step) for spans in found.threads for span in spans if span.what >= 0]
    assert sorted(ran) == list(itertools.product(range(len(prepare.plan(config).program.calls)), range(2, 12)))
    events = check_chrome("".join(chrome.chrome([("run", found)])))
    sums: dict[str, float] = collections.defaultdict(float)
    for event in events:
        if event["ph"] == "X":
            sums[event["name"] if event["cat"] == "waiting" else event["cat"]] += event["dur"] * 1e-6
    for phase in PHASES:
        assert sums[phase] == pytest.approx(sum(result.phase_busy_s[phase][2:]), rel=0.01)
    for name, field in (("wait: barrier", "barrier_s"), ("wait: starvation", "starvation_s")):
        assert sums[name] == pytest.approx(sum(getattr(t, field) for t in result.threads), rel=0.01, abs=1e-6)
    assert sums["step"] == pytest.approx(sum(result.step_s[2:]), rel=0.01)
    records = check_paraver("\n".join(paraver.prv(found, datetime.datetime(2026, 1, 1))))
    running_s = sum(r[5] - r[4] for r in records["1"] if r[6] in (paraver.RUNNING, paraver.PREEMPTED)) * 1e-9
    assert running_s == pytest.approx(sum(t.useful_s for t in result.threads), rel=0.01)


def test_a_trace_that_does_not_fit_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(execute, "MAX_EVENTS", 100)
    result = train.train(dataclasses.replace(SMALL, trace=str(tmp_path / "trace.json.gz")))
    assert any("the trace is cut off" in warning for warning in result.warnings)


def test_a_profile_holds_each_tasks_mean_and_the_graph(tmp_path):
    path = tmp_path / "profile.json.gz"
    result = train.train(SMALL, profile_path=path)
    found = profile_of(json.loads(gzip.decompress(path.read_bytes())))
    assert found.work_s == pytest.approx(result.graph["t1_s"])
    assert found.fork_join_span_s == pytest.approx(result.graph["fork_join_tinf_s"])
    assert len(found.edges) == result.graph["edges"]
    assert found.work_s * (SMALL.steps - 2) == pytest.approx(sum(op.time_s for op in result.ops), rel=1e-4)


def test_peak_memory_is_explained(tmp_path):
    """The run has its own process, whose memory consists mostly of arenas. What draws its weights is compiled before: a
    run that loads the compiler for that alone counts the compiler's memory as the arenas'.
    """
    Normals([1]).fill(np.empty(LARGE, np.float32), 1.0)
    model = {"layers": 4, "heads": 8, "channels": 512, "vocab": 8192, "context": 128}
    config = TrainConfig(model=model_from(model), batch=4, seq=128, steps=2, warmup=1, data="synthetic", threads=2)
    path = tmp_path / "result.json"
    subprocess.run(launch.command(path), input=json.dumps(config.to_dict()), text=True, check=True, capture_output=True)
    result = json.loads(path.read_text())
    assert result["compiled"] is not None
    pieces, peak = result["resident_bytes"], result["memory_bytes"]["peak_rss"]
    assert sum(pieces.values()) == pytest.approx(peak, rel=0.1)
    exact = sum(memory_bytes(prepare.plan(config).config).values())
    assert exact > 0.3 * peak
    assert pieces["arenas"] == pytest.approx(exact, rel=0.1)
