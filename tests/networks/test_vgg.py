"""The VGG's step: its bits, its values, its accesses, its memory and its files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from gpt2core.gemm import libraries as gemm
from gpt2core.gemm import table
from gpt2core.networks import program
from gpt2core.networks.memory import memory_bytes, plan
from gpt2core.networks.network import model_in, network_of
from gpt2core.networks.vgg.tensors import PRESETS, Vgg
from gpt2core.run import prepare, train
from gpt2core.run.fill import fill
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import ConfigError, ShapeMismatch
from gpt2core.spec.fields import FUSIONS, SYNCS
from gpt2core.spec.models import model_from
from gpt2core.spec.series import without_new
from gpt2core.step import graph
from gpt2core.step.memory import Memory
from taskloom.contract.runs import RunSpec
from taskloom.server.queue.experiments.memory import run_memory_bytes
from tests.support import poison
from tests.support.networks import vggs

GOLDEN = Path(__file__).parents[1] / "golden"
HOW: list[dict[str, Any]] = [
    {"scheduler": "fork-join", "threads": 3, "fusion": "none"},
    *({"scheduler": "task", "sync": sync, "threads": threads} for sync, threads in zip(SYNCS, (1, 3, 8), strict=True)),
    {"scheduler": "fork-join", "threads": 2, "fusion": "rows"},
    *({"scheduler": "task", "threads": 2, "fusion": fusion} for fusion in FUSIONS),
]
pytestmark = pytest.mark.usefixtures("no_canary")


def test_training_follows_pytorch_with_the_same_bits_under_every_scheduler() -> None:
    """Losses of ten steps agree to a relative 1e-5 with those of a torch module, which tests/golden stores."""
    golden, first = np.load(GOLDEN / "vgg.npz"), train.train(vggs.config())
    np.testing.assert_allclose(first.losses, golden["losses"], rtol=1e-5)
    np.testing.assert_allclose(first.accuracy, golden["accuracies"], rtol=1e-12)
    for how in HOW:
        result = train.train(vggs.config(**how))
        assert (result.losses, result.weights_sha256) == (first.losses, first.weights_sha256), how
    other = train.train(vggs.config(batch_slice=5))
    np.testing.assert_allclose(other.losses, golden["losses"], rtol=1e-5)


def test_accumulated_and_clipped_gradients_have_the_same_bits_under_every_scheduler() -> None:
    change = {"grad_accum": 2, "grad_clip": 0.5, "steps": 3}
    first = train.train(vggs.config(**change))
    for how in ({"scheduler": "fork-join", "threads": 2}, {"scheduler": "task", "threads": 3, "sync": "none"}):
        result = train.train(vggs.config(**change, **how))
        assert (result.losses, result.weights_sha256) == (first.losses, first.weights_sha256), how


def test_every_two_tasks_that_conflict_are_ordered() -> None:
    for change in ({}, {"fusion": "none"}, {"fusion": "all"}, {"grad_accum": 2, "grad_clip": 0.5}):
        for sync in SYNCS:
            step = program.build(vggs.config(**change))
            graph.validate(step, graph.build(step, sync))


@pytest.mark.parametrize("how", [{"fusion": "none"}, {"fusion": "all"}, {}, {"mode": "infer", "score": True}], ids=str)
def test_tasks_read_and_write_what_they_declare(how: dict[str, Any]) -> None:
    unread = ("lr", "weight_decay") if "mode" in how else ()
    given = {name: value for name, value in vggs.COMMON.items() if name not in unread}
    config = TrainConfig.from_dict({**given, "steps": 1, **how})
    data = network_of(config).data(config)
    libraries = table.choose(gemm.load(config.blas, config.precision), [], lambda _: None)
    poison.check(program.build(config), plan(config), lambda memory: fill(memory, config, data), libraries)


def test_an_evaluation_is_an_inference_of_the_validation_images(tmp_path: Path) -> None:
    """It changes no bit of the training."""
    path, plain = str(tmp_path / "after.safetensors"), train.train(vggs.config(steps=2))
    result = train.train(vggs.config(steps=2, evaluate_every=2, val_samples=5, save=path))
    assert (result.losses, result.weights_sha256) == (plain.losses, plain.weights_sha256)
    given = {name: value for name, value in vggs.COMMON.items() if name not in ("lr", "weight_decay")}
    how = {"mode": "infer", "score": True, "split": "val", "shuffle": "none", "val_samples": 5, "steps": 1}
    (loss,) = (inferred := train.train(TrainConfig.from_dict({**given, **how, "checkpoint": path}))).losses
    (found,) = result.evaluations
    assert found == {"step": 2, "loss": pytest.approx(loss, rel=1e-6), "accuracy": inferred.accuracy[0]}


def test_its_memory_is_known_beforehand_and_its_size_is_the_published_one() -> None:
    for change in ({}, {"grad_accum": 2, "grad_clip": 0.5}, {"evaluate_every": 2, "val_samples": 3}):
        config = vggs.config(scheduler="task", threads=3, **change)
        planned = prepare.plan(config)
        arenas = Memory(plan(config)).arenas
        assert run_memory_bytes(config) == sum(arena.nbytes for arena in arenas.values())
        assert planned.memory_bytes == memory_bytes(config) == {kind: each.nbytes for kind, each in arenas.items()}
    model = PRESETS["vgg11-cifar"]
    of_convolutions = sum(spec.size for each in model.convolutions for spec in each.specs)
    assert of_convolutions == 9_220_480  # torchvision's vgg11().features
    assert sum(spec.size for spec in model.weights) == 9_220_480 + 2 * (512 * 512 + 512) + 10 * 512 + 10
    assert model.step_flop(3, 1) == 3 * model.step_flop(1, 1)
    forward = sum(each.flop for each in model.convolutions) + 2 * (2 * 512 * 512 + 10 * 512)
    assert model.forward_flop(3, 1, 3) == 3 * forward


@pytest.mark.parametrize(
    ("width", "batch", "threads", "images"),
    [
        (64, 1024, 2, 43), (64, 128, 2, 32), (64, 128, 8, 8), (64, 3, 4, 1),  # 43 images: layers of 36.9 MB
        (8, 1024, 2, 23), (8, 128, 8, 8),  # 23 images: 1 MiB in the largest layer
    ],
)  # fmt: skip
def test_its_slices_fill_a_cache_or_outweigh_their_share_of_the_gradients(
    width: int, batch: int, threads: int, images: int
) -> None:
    assert Vgg(width).slices(batch, 1, threads, (None, None)) == (images, 1)
    assert Vgg(width).slices(batch, 1, threads, (5, None)) == (5, 1)


def test_a_preset_is_a_model_by_name_and_has_defaults_of_its_own() -> None:
    config = TrainConfig.from_dict({"model": "vgg11-cifar"})
    assert TrainConfig.from_dict(config.to_dict()) == config
    spec = RunSpec.model_validate_json(RunSpec.model_validate(config.to_dict()).model_dump_json())
    assert TrainConfig.from_dict(spec.model_dump(exclude_none=True)) == config
    assert (config.model.name, config.to_dict()["model"]["network"]) == ("vgg11-cifar", "vgg")
    assert (config.seq, config.data, config.optimizer, config.momentum) == (1, "synthetic", "sgd", 0.9)
    assert not {"split", "evaluate_every", "shuffle", "val_samples"} & without_new(config.to_dict()).keys()


@pytest.mark.parametrize(
    ("settings", "field", "accepted"),
    [
        ({"model": {"network": "vgg", "side": 31}}, "model.side", "32 to 512"),
        ({"model": {"network": "vgg", "hidden": 0}}, "model.hidden", "1 to"),
        ({"model": {"network": "vgg", "blocks": 2}}, "model.blocks", "no such setting of vgg; known: width, hidden"),
        ({"data": "cifar10:x"}, "data", "a vgg with side 32 and classes 10"),
        ({"precision": "bf16"}, "precision", "fp32, since network vgg has no other"),
        ({"op_order": "diagonals"}, "op_order", "network vgg does not read it"),
    ],
)
def test_settings_that_are_refused(settings: dict[str, Any], field: str, accepted: str) -> None:
    with pytest.raises(ConfigError, match=accepted) as raised:
        vggs.config(**settings)
    assert field in [each.field for each in (raised.value, *raised.value.others)]


def test_its_files_have_torchvisions_names_and_are_read_back(tmp_path: Path) -> None:
    path, again = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    train.train(vggs.config(steps=1, save=str(path)))
    stored = load_file(path)
    assert stored["features.3.weight"].shape == (6, 3, 3, 3)
    assert list(stored) == sorted(
        [f"features.{at}.{kind}" for at in (0, 3, 6, 8, 11, 13, 16, 18) for kind in ("weight", "bias")]
        + [f"classifier.{at}.{kind}" for at in (0, 3, 6) for kind in ("weight", "bias")]
    )
    assert model_in(str(path)) == Vgg(3, 6, 7)
    train.train(vggs.config(checkpoint=str(path), save=str(again), steps=1, lr=0.0, weight_decay=0.0))
    for name, array in load_file(again).items():
        assert np.array_equal(array, stored[name]), name
    del stored["features.8.bias"]
    save_file(stored, again)
    with pytest.raises(ShapeMismatch, match=r"features\.8\.bias"):
        model_in(str(again))
    with pytest.raises(ConfigError, match=r"ends in \.safetensors, the file format of a vgg"):
        prepare.plan(vggs.config(save=str(tmp_path / "c.bin")))


def test_initial_weights_have_their_distributions_and_follow_the_seed() -> None:
    config = TrainConfig(model_from("vgg11-cifar"))
    network = network_of(config)
    specs = network.tensors(config)["weights"]
    weights, again = ({spec.name: np.full(spec.shape, np.nan, np.float32) for spec in specs} for _ in range(2))
    network.initialise(config, weights)
    network.initialise(config, again)
    assert weights["features.18.weight"].std() == pytest.approx((2 / (512 * 9)) ** 0.5, rel=0.01)
    assert weights["classifier.0.weight"].std() == pytest.approx((2 / 512) ** 0.5, rel=0.01)
    assert not weights["features.0.bias"].any()
    assert all(np.array_equal(weights[name], again[name]) for name in weights)
