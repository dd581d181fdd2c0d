"""What the networks of padded words, reader and seq2seq, promise alike: every scheduler, PyTorch's losses, declared
accesses, memory, presets, files."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from gpt2core.gemm import libraries as gemm
from gpt2core.gemm import table
from gpt2core.networks import program
from gpt2core.networks.memory import memory_bytes, plan
from gpt2core.networks.network import model_in, network_of
from gpt2core.run import canary, prepare, train
from gpt2core.run.fill import fill
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import ConfigError, ShapeMismatch
from gpt2core.spec.fields import FUSIONS, SYNCS
from gpt2core.spec.models import model_from
from gpt2core.spec.result import TrainResult
from gpt2core.step import graph
from taskloom.contract.runs import RunSpec
from taskloom.server.queue.experiments.memory import run_memory_bytes
from tests.support import poison
from tests.support.apart import processes
from tests.support.networks import cases, readers, seq2seqs
from tests.support.networks.inferring import halves_are_close

GOLDEN = Path(__file__).parents[1] / "golden"
SUMMED: dict[str, Any] = {"grad_accum": 2, "grad_clip": 0.5, "steps": 3}
FEW: list[dict[str, Any]] = [
    {"fusion": "none"},
    {"scheduler": "fork-join", "threads": 3, "assignment": "dynamic"},
    {"scheduler": "fork-join", "threads": 2, "fusion": "rows"},
    *({"scheduler": "task", "sync": sync, "threads": threads} for sync, threads in zip(SYNCS, (1, 3, 8), strict=True)),
]
OUTPUTS = {"reader": "probabilities", "seq2seq": "logits"}
LARGE = {"reader": ("reader-cbt", 400), "seq2seq": ("seq2seq-medium", 40)}  # a preset, and words of its samples
FIRST = {"reader": "embedding.weight", "seq2seq": "source_embedding.weight"}
pytestmark = [
    pytest.mark.usefixtures("no_canary"),
    pytest.mark.parametrize("network", [readers, seq2seqs], ids=["reader", "seq2seq"]),
]


def name_of(network: ModuleType) -> str:
    return str(network.MODEL["network"])


def golden(network: ModuleType) -> Any:
    return np.load(GOLDEN / f"{name_of(network)}.npz")["losses"]


def test_training_follows_pytorch_with_the_same_bits_under_every_scheduler(network: ModuleType) -> None:
    """Losses of ten steps agree to a relative 1e-5 with those of a torch module, which tests/golden stores."""
    first, losses = train.train(network.config()), golden(network)
    np.testing.assert_allclose(first.losses, losses, rtol=1e-5)
    for how in FEW:
        result = train.train(network.config(**how))
        assert (result.losses, result.weights_sha256) == (first.losses, first.weights_sha256), how
    assert losses[-1] < losses[0]
    for batch_slice, token_slice in ((5, 10), (1, 1)):
        other = train.train(network.config(batch_slice=batch_slice, token_slice=token_slice))
        np.testing.assert_allclose(other.losses, losses, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("change", [{"steps": 3}, SUMMED], ids=str)
def test_all_schedulers_and_numbers_of_threads_give_the_same_bits(network: ModuleType, change: dict[str, Any]) -> None:
    fusions = FUSIONS if "grad_clip" not in change else FUSIONS[:2]
    fused = [{"scheduler": name, "threads": 2, "fusion": each} for name in ("fork-join", "task") for each in fusions]
    outcomes = {
        (tuple(result.losses), result.weights_sha256)
        for how in [*cases.HOW, *fused]
        for result in [train.train(network.config(**change, **how))]
    }
    assert len(outcomes) == 1


def run_without_canary(config: TrainConfig) -> TrainResult:
    canary.UNAVAILABLE = "bits are compared, not times"
    return train.train(config)


@pytest.mark.slow
def test_loops_and_tasks_of_openmp_give_the_same_bits(network: ModuleType) -> None:
    """In another process, which has no OpenMP runtime but the run's."""
    every = [
        {},
        {"scheduler": "omp-for", "threads": 2},
        {"scheduler": "omp-for", "threads": 2, "assignment": "dynamic"},
        *({"scheduler": "omp-task", "threads": 2, "sync": sync} for sync in SYNCS),
    ]
    with processes() as apart:
        results = [apart("bits", run_without_canary, network.config(steps=3, **how)) for how in every]
    assert len({(tuple(result.losses), result.weights_sha256) for result in results}) == 1


def test_accumulated_and_clipped_gradients_have_the_same_bits_under_every_scheduler(network: ModuleType) -> None:
    first = train.train(network.config(**SUMMED))
    for how in ({"scheduler": "fork-join", "threads": 2}, {"scheduler": "task", "threads": 3, "sync": "none"}):
        result = train.train(network.config(**SUMMED, **how))
        assert (result.losses, result.weights_sha256) == (first.losses, first.weights_sha256), how


def test_products_in_bf16_have_the_same_bits_under_every_scheduler(network: ModuleType) -> None:
    how = {"precision": "bf16"}
    first = train.train(network.config(**how))
    np.testing.assert_allclose(first.losses, golden(network), rtol=1e-2)
    for other in ({"scheduler": "fork-join", "threads": 2, "fusion": "rows"}, {"scheduler": "task", "threads": 3}):
        result = train.train(network.config(**how, **other))
        assert (result.losses, result.weights_sha256) == (first.losses, first.weights_sha256), other


def test_every_two_tasks_that_conflict_are_ordered(network: ModuleType) -> None:
    for change in ({}, {"fusion": "none"}, SUMMED):
        for sync in SYNCS:
            step = program.build(network.config(**change))
            graph.validate(step, graph.build(step, sync))


@pytest.mark.parametrize("change", [{"fusion": "none"}, {}, {"precision": "bf16"}], ids=["none", "all", "bf16"])
def test_training_reads_and_writes_what_its_tasks_declare(network: ModuleType, change: dict[str, Any]) -> None:
    accesses_are_declared(network.config(steps=1, **change))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_inference_reads_and_writes_what_its_tasks_declare(network: ModuleType, precision: str) -> None:
    accesses_are_declared(network.inference(steps=1, score=True, precision=precision))


def accesses_are_declared(how: TrainConfig) -> None:
    data = network_of(how).data(how)
    libraries = table.choose(gemm.load(how.blas, how.precision), [], prepare.silent)
    poison.check(program.build(how), plan(how), lambda memory: fill(memory, how, data), libraries)


def test_inference_in_bf16_has_half_of_the_bytes_and_outputs_within_a_percent(network: ModuleType) -> None:
    halves_are_close(network.inference, OUTPUTS[name_of(network)])


def test_its_memory_is_known_beforehand(network: ModuleType) -> None:
    for how in (network.config(scheduler="task", threads=3), network.config(**SUMMED), network.inference(),
                network.inference(precision="bf16")):  # fmt: skip
        planned = prepare.plan(how)
        assert planned.memory_bytes == memory_bytes(planned.config)
        assert run_memory_bytes(how) == sum(planned.memory_bytes.values())
    preset, words = LARGE[name_of(network)]
    large = TrainConfig(model_from(preset), 16, words, threads=2)
    trained, inferred = (memory_bytes(how) for how in (large, dataclasses.replace(large, mode="infer")))
    assert inferred["activations"] < trained["activations"] / 2
    assert (inferred["gradients"], inferred["optimizer"]) == (0, 0)


def test_a_preset_is_a_model_by_name_and_has_defaults_of_its_own(network: ModuleType) -> None:
    tiny = f"{name_of(network)}-tiny"
    config = TrainConfig.from_dict({"model": tiny})
    assert TrainConfig.from_dict(config.to_dict()) == config
    spec = RunSpec.model_validate_json(RunSpec.model_validate(config.to_dict()).model_dump_json())
    assert TrainConfig.from_dict(spec.model_dump(exclude_none=True)) == config
    assert (config.model, config.data) == (network_of(config).presets[tiny], "synthetic")


def test_a_file_has_the_model_and_the_same_weights(network: ModuleType, tmp_path: Path) -> None:
    first, second = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    one = train.train(network.config(steps=1, save=str(first)))
    saved = model_in(str(first))
    sizes = {name: network.MODEL[name] for name in ("network", "embedding", "hidden", "vocab")}
    assert {name: getattr(saved, name) for name in sizes} == sizes
    again = train.train(network.config(steps=1, lr=0, weight_decay=0, checkpoint=str(first), save=str(second)))
    assert again.weights_sha256 == one.weights_sha256
    assert first.read_bytes() == second.read_bytes()
    misfit = rf"{FIRST[name_of(network)]} has shape \(23, 6\).* needs \(23, 8\)"
    with pytest.raises(ShapeMismatch, match=misfit):
        train.train(network.config(model={**network.MODEL, "embedding": 8}, checkpoint=str(first)))
    with pytest.raises(ConfigError, match=rf"ends in \.safetensors, the file format of a {name_of(network)}"):
        prepare.plan(network.config(save=str(tmp_path / "c.bin")))
