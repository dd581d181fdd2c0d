"""Inference computes the logits of training, with the same bits, and its losses, under every scheduler."""

from __future__ import annotations

import ctypes
import dataclasses
import hashlib
import json
from typing import Any

import numpy as np
import pytest

from gpt2core.gemm import libraries as gemm
from gpt2core.gemm import table
from gpt2core.layers.windows import packed_places
from gpt2core.measure.tracing import new_record
from gpt2core.networks import halves, program
from gpt2core.networks.memory import memory_bytes, plan
from gpt2core.networks.network import network_of
from gpt2core.run import canary, outputs, prepare, train
from gpt2core.run.fill import fill
from gpt2core.schedulers import dispatch
from gpt2core.schedulers.serial.loop import serial_loop
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.models import ModelConfig, model_from
from gpt2core.step import slicing
from gpt2core.step.control import STEPS_DONE
from gpt2core.step.memory import Memory
from taskloom.analysis.agreement import distance
from taskloom.server.errors import BadResult
from taskloom.server.queue.attempts import digest, payload
from tests.support import poison
from tests.support.networks.inferring import computed
from tests.support.present import present

GPT2 = ModelConfig(layers=2, heads=2, channels=32, vocab=61, context=16)
LSTM = {"network": "lstm", "embedding": 24, "hidden": 32, "layers": 2, "vocab": 61, "context": 16}
RESNET = {"network": "resnet", "blocks": 2, "width": 5, "classes": 7, "side": 9}
VGG = {"network": "vgg", "width": 3, "hidden": 6, "classes": 7, "side": 33}
OF_IMAGES = (RESNET, VGG)
RAGGED = {"batch": 3, "seq": 10, "batch_slice": 2, "token_slice": 4, "data": "synthetic", "steps": 1, "warmup": 0}
ROUNDING = 1e-6  # of the sum of exponentials, whose order is the compiler's
libc = ctypes.CDLL(None)
CASES = pytest.mark.parametrize(
    ("model", "precision"), [(GPT2, "fp32"), (GPT2, "bf16"), (LSTM, "fp32"), (LSTM, "bf16")],
    ids=["gpt2", "gpt2-bf16", "lstm", "lstm-bf16"],
)  # fmt: skip


class Mallinfo2(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
    )]  # fmt: skip


def heap_bytes() -> int:
    """Bytes in use of glibc's heap and of its mapped blocks."""
    libc.mallinfo2.restype = Mallinfo2
    found = libc.mallinfo2()
    return found.uordblks + found.hblkhd


def config(model: object, **settings: object) -> TrainConfig:
    given = {"model": model, **RAGGED, **settings}
    if model in OF_IMAGES:
        del given["seq"], given["token_slice"]
    return slicing.resolve(TrainConfig.from_dict(given))


def rounded_weights(path, model):
    """A file of initial weights that bfloat16 represents."""
    weights = computed(config(model), "loss").weights
    network_of(config(model)).write(
        config(model, save=str(path)),
        {name: halves.widened(halves.rounded(weight)) for name, weight in weights.items()},
    )
    return str(path)


@CASES
def test_forward_of_inference_has_the_bits_of_training(model, precision, tmp_path):
    """With bf16 from weights that are bfloat16, since inference keeps no others."""
    weights = rounded_weights(tmp_path / "weights.safetensors", model) if precision == "bf16" else None
    how = {"precision": precision, "checkpoint": weights}
    training = config(model, fusion="rows", **how)
    logits = computed(training, "loss").arrays["logits"]
    losses = computed(training, "backward").arrays["loss"]
    every = computed(config(model, mode="infer", score=True, **how))
    assert np.array_equal(every.arrays["logits"], logits)
    assert np.allclose(every.arrays["loss"], losses, rtol=ROUNDING)
    alone = computed(config(model, mode="infer", **how))
    assert np.array_equal(alone.arrays["logits"], logits)
    assert "losses" not in alone.arrays
    apart = computed(config(model, mode="infer", logits="none-kept", score=True, **how))
    assert np.allclose(apart.arrays["loss"], losses, rtol=ROUNDING)
    last = computed(config(model, mode="infer", logits="last", score=True, **how))
    rows = outputs.in_order(every, len(logits))[training.seq - 1 :: training.seq]
    assert np.array_equal(last.arrays["logits"], logits[rows])
    assert np.allclose(last.arrays["loss"], losses[rows], rtol=ROUNDING)


@pytest.mark.parametrize(("model", "fusion"), [(RESNET, "none"), (RESNET, "rows"), (VGG, "rows")], ids=str)
def test_inference_of_images_has_the_bits_of_training(model, fusion):
    trained = computed(config(model, fusion=fusion), "loss").arrays["logits"]
    losses = computed(config(model, fusion=fusion), "backward").arrays["loss"]
    for logits in ("all", "last"):
        found = computed(config(model, mode="infer", fusion=fusion, logits=logits, score=True)).arrays
        assert np.array_equal(found["logits"], trained)
        assert np.allclose(found["loss"], losses, rtol=ROUNDING)


def test_an_lstm_in_slices_of_units_infers_from_panels_packed_once():
    trained = computed(config(LSTM, unit_slice=20), "loss").arrays["logits"]
    infer = config(LSTM, mode="infer", unit_slice=20)
    assert np.array_equal(computed(infer).arrays["logits"], trained)
    assert "pack" not in {op.name for op in program.build(infer).ops}


@pytest.mark.parametrize("model", [GPT2, LSTM, RESNET, VGG], ids=["gpt2", "lstm", "resnet", "vgg"])
def test_weights_are_packed_before_the_steps(model):
    """A step of inference packs nothing. Its packed weights have the bits of those that a training step packs."""
    names = {mode: {op.name for op in program.build(config(model, mode=mode)).ops} for mode in ("train", "infer")}
    once = present(program.build(config(model, mode="infer")).once)
    trains = model is not GPT2  # GPT-2's weights are packed in their places, so only where no step writes them
    assert ("pack" in names["train"], "pack" in names["infer"]) == (trains, False)
    assert {op.name for op in once.ops} == {"pack"}
    if trains:
        packed = "panels" if model is LSTM else "packed"
        mine, its = (computed(config(model, mode=mode, blas="own")).arrays[packed] for mode in ("infer", "train"))
        if model in OF_IMAGES:  # training turns weights too, each behind its own
            of_images: Any = config(model).model
            convolutions = of_images.convolutions
            where = [packed_places(convolutions, trains) for trains in (False, True)]
            for place, longer in zip(*(places.values() for places in where), strict=True):
                assert np.array_equal(mine[place.at : place.end], its[longer.at : longer.turned_at])
        else:
            assert np.array_equal(mine, its)


@pytest.mark.parametrize("model", [GPT2, LSTM, RESNET, VGG], ids=["gpt2", "lstm", "resnet", "vgg"])
def test_steps_of_inference_allocate_nothing(model):
    """Compiled code that allocates is refused (test_objects); glibc counts what else would. Its smallest block has 32
    bytes."""
    infer = config(model, mode="infer", steps=101, blas="own")
    step, memory = program.build(infer), Memory(plan(infer))
    fill(memory, infer, network_of(infer).data(infer))
    products = table.choose([gemm.ours()], step.products, prepare.silent)
    dispatch.run_once(step, memory, products)
    bound, control = dispatch.bind(step, memory, 1, products), memory.arrays["control"]
    record = new_record(1, 101, 0, 64, 0)
    serial_loop(0, bound.tasks, bound.context, record, control, 1)
    before = heap_bytes()
    serial_loop(0, bound.tasks, bound.context, record, control, 101)
    assert heap_bytes() - before < 32 * 100
    assert control[STEPS_DONE] == 101


@pytest.mark.parametrize(
    ("model", "precision", "logits"),
    [
        (GPT2, "fp32", "none-kept"), (GPT2, "bf16", "last"), (GPT2, "bf16", "none-kept"), (LSTM, "fp32", "all"),
        (LSTM, "bf16", "all"), (LSTM, "fp32", "last"),
        (RESNET, "fp32", "all"), (VGG, "fp32", "last"),
    ],
)  # fmt: skip
def test_tasks_of_inference_read_and_write_what_they_declare(model, precision, logits):
    infer = config(model, precision=precision, mode="infer", logits=logits, score=True)
    data = network_of(infer).data(infer)
    libraries = table.choose(gemm.load(infer.blas, infer.precision), [], prepare.silent)
    poison.check(program.build(infer), plan(infer), lambda memory: fill(memory, infer, data), libraries)


@pytest.mark.parametrize(
    ("model", "precision"),
    [(GPT2, "fp32"), (GPT2, "bf16"), (LSTM, "fp32"), (LSTM, "bf16"), (RESNET, "fp32"), (VGG, "fp32")],
    ids=["gpt2", "gpt2-bf16", "lstm", "lstm-bf16", "resnet", "vgg"],
)
def test_outputs_do_not_depend_on_scheduler_sync_and_threads(model, precision, monkeypatch):
    monkeypatch.setattr(canary, "UNAVAILABLE", "bits are compared, not times")
    found = set()
    for scheduler, sync, threads in (("serial", "step", 1), ("fork-join", "step", 2), ("task", "none", 2)):
        result = train.train(config(
            model, mode="infer", steps=4, scheduler=scheduler, sync=sync, threads=threads, precision=precision,
            allow_oversubscription=True,
        ))  # fmt: skip
        found.add(result.outputs_sha256)
        assert (result.losses, result.weights_sha256) == ([], None)
        assert set(result.phase_s) == set(result.phase_busy_s) == {"data", "forward"}
        assert {phase for thread in result.threads for phase in thread.phase_useful_s} == {"data", "forward"}
        assert result.summary["samples_per_s"] > 0
        assert present(result.latency)["p99_s"] == max(result.step_s)
        assert result.memory_bytes["gradients"] == result.memory_bytes["optimizer"] == 0
    assert len(found) == 1
    other = train.train(config(model, mode="infer", steps=4, token_slice=10, batch_slice=3, precision=precision))
    apart = distance(present(other.outputs_sketch), present(result.outputs_sketch))
    assert 0 < apart < 1e-4 or other.outputs_sha256 in found


@pytest.mark.parametrize(
    "settings",
    [{}, {"mode": "infer", "score": True, "logits": "none-kept"}, {"mode": "infer", "logits": "last"}],
    ids=str,
)
def test_a_server_accepts_the_results_of_both_modes(settings, monkeypatch):
    monkeypatch.setattr(canary, "UNAVAILABLE", "nothing is timed")
    run = config(GPT2, **{**settings, "steps": 3})
    result = train.train(run).to_dict()
    text = json.dumps({"result": result, "error": None})
    checked = payload.check(text, hashlib.sha256(text.encode()).hexdigest(), "succeeded", run.to_dict())
    found = payload.figures(result)
    assert set(present(found.phase_s)) == set(run.phases)
    assert (found.final_loss is None) == ("loss" not in run.phases)
    digested = json.loads(digest.digest(present(checked.result))["measured"])
    assert ("latency" in digested) == (run.mode == "infer")
    for name in ("weights_sha256", "outputs_sha256", "latency"):
        wanted = (name == "weights_sha256") == (run.mode == "train")
        lacking = json.dumps({"result": {**result, name: None}, "error": None})
        if wanted:
            with pytest.raises(BadResult, match=name):
                payload.check(lacking, hashlib.sha256(lacking.encode()).hexdigest(), "succeeded", run.to_dict())


def test_a_sketch_estimates_how_much_outputs_differ():
    infer = config(GPT2, mode="infer")
    memory, step = computed(infer), program.build(infer)
    kept = memory.arrays["logits"].copy()
    sha256, sketch = outputs.outputs(step, memory, 61)
    assert outputs.outputs(step, memory, 61) == (sha256, sketch)
    random = np.random.default_rng(0)
    for share in (1e-5, 1e-3, 1e-1):
        noise = random.standard_normal(kept[:, :61].shape).astype(np.float32)
        noise *= share * np.linalg.norm(kept[:, :61], axis=1)[:, None] / np.linalg.norm(noise, axis=1)[:, None]
        memory.arrays["logits"][:, :61] = kept[:, :61] + noise
        other_sha256, other = outputs.outputs(step, memory, 61)
        assert other_sha256 != sha256
        assert distance(sketch, other) == pytest.approx(share, rel=0.5)
    memory.arrays["logits"][...] = kept


def test_inference_of_gpt2_needs_less_memory_than_training():
    training = TrainConfig(model=model_from("gpt2-124m"), batch=4, seq=64, threads=2)
    every = memory_bytes(dataclasses.replace(training, mode="infer"))
    last = memory_bytes(dataclasses.replace(training, mode="infer", logits="last"))
    assert every["weights"] == last["weights"] == memory_bytes(training)["weights"]
    assert every["gradients"] == every["optimizer"] == 0
    mib = {name: sum(found.values()) >> 20 for name, found in (("all", every), ("last", last))}
    assert mib["all"] <= 475 + 57
    assert mib["last"] <= 475 + 12
    half = memory_bytes(dataclasses.replace(training, mode="infer", logits="last", precision="bf16"))
    assert half["weights"] <= 0.501 * last["weights"]
    long = dataclasses.replace(training, batch=8, seq=1024)
    share = sum(memory_bytes(dataclasses.replace(long, mode="infer", logits="last")).values())
    assert share <= 0.12 * sum(memory_bytes(long).values())
