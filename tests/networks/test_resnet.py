"""The ResNet's step: its bits, its values, its accesses and its memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpt2core.gemm import libraries as gemm
from gpt2core.gemm import table
from gpt2core.networks import program
from gpt2core.networks.memory import memory_bytes, plan
from gpt2core.networks.network import network_of
from gpt2core.networks.resnet.tensors import PRESETS, Resnet
from gpt2core.run import prepare, train
from gpt2core.run.fill import fill
from gpt2core.spec.config import OF_NETWORK, TrainConfig
from gpt2core.spec.errors import ConfigError
from gpt2core.spec.fields import FUSIONS, SYNCS
from gpt2core.spec.models import model_from
from gpt2core.step import slicing
from gpt2core.step.memory import Memory
from taskloom.contract.runs import RunSpec
from taskloom.server.queue.experiments.memory import run_memory_bytes
from tests.support import poison
from tests.support.networks import resnets

GOLDEN = Path(__file__).parents[1] / "golden"
HOW: list[dict[str, Any]] = [
    *({"scheduler": "fork-join", "threads": threads} for threads in (1, 3, 8)),
    {"scheduler": "fork-join", "threads": 3, "assignment": "dynamic"},
    *({"scheduler": "task", "sync": sync, "threads": threads} for sync in SYNCS for threads in (1, 3, 8)),
    *({"scheduler": scheduler, "threads": 2, "fusion": f} for f in FUSIONS for scheduler in ("fork-join", "task")),
]
CHANGES: list[dict[str, Any]] = [{}, {"grad_accum": 2, "grad_clip": 0.5}]
pytestmark = pytest.mark.usefixtures("no_canary")


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_every_scheduler_gives_the_same_bits(change: dict[str, Any]) -> None:
    first = train.train(resnets.config(steps=3, **change))
    for how in HOW[2::3] if change else HOW:
        if change and how.get("fusion") == "all":
            continue
        result = train.train(resnets.config(steps=3, **change, **how))
        assert (result.losses, result.weights_sha256) == (first.losses, first.weights_sha256), how


@pytest.mark.parametrize("threads", [1, 3])
def test_training_follows_pytorch(threads: int) -> None:
    """Losses of ten steps agree to a relative 1e-5 with those of a torch module, which tests/golden stores."""
    golden = np.load(GOLDEN / "resnet.npz")
    result = train.train(resnets.config(scheduler="task", threads=threads))
    np.testing.assert_allclose(result.losses, golden["losses"], rtol=1e-5)
    np.testing.assert_allclose(result.accuracy, golden["accuracies"], rtol=1e-12)


@pytest.mark.parametrize("batch_slice", [1, 3, 5])
def test_slices_change_only_the_rounding(batch_slice: int) -> None:
    golden = np.load(GOLDEN / "resnet.npz")
    result = train.train(resnets.config(batch_slice=batch_slice))
    np.testing.assert_allclose(result.losses, golden["losses"], rtol=1e-5)


@pytest.mark.parametrize(
    "how", [*({"fusion": fusion} for fusion in FUSIONS), {"grad_accum": 2, "grad_clip": 0.5}], ids=str
)
def test_tasks_read_and_write_what_they_declare(how: dict[str, Any]) -> None:
    config = resnets.config(steps=1, **how)
    data = network_of(config).data(config)
    libraries = table.choose(gemm.load(config.blas, config.precision), [], lambda _: None)
    poison.check(program.build(config), plan(config), lambda memory: fill(memory, config, data), libraries)


def test_with_fusion_a_block_is_one_task_a_slice() -> None:
    names = [op.name for op in program.build(resnets.config(fusion="rows")).ops]
    assert names.count("conv3x3+conv3x3") == 4
    assert names.count("conv3x3+conv1x1+conv3x3") == 2
    assert sum(name.startswith("conv3x3_dweight+conv3x3_dinp+") for name in names) == 6
    separate = [op.name for op in program.build(resnets.config(fusion="none")).ops]
    assert all("+" not in name for name in separate)
    assert separate.count("conv3x3") == 13
    assert separate.count("conv1x1_fold") == 2


def test_a_server_knows_its_configuration_and_its_memory() -> None:
    config = resnets.config(scheduler="task", threads=3)
    spec = RunSpec.model_validate_json(RunSpec.model_validate(config.to_dict()).model_dump_json())
    assert TrainConfig.from_dict(spec.model_dump(exclude_none=True)) == config
    planned = prepare.plan(config)
    arenas = Memory(plan(config)).arenas
    assert run_memory_bytes(config) == sum(arena.nbytes for arena in arenas.values())
    assert planned.memory_bytes == memory_bytes(config)


def test_the_published_networks_size() -> None:
    model = PRESETS["resnet14-cifar"]
    config = TrainConfig.from_dict({"model": model, "batch": 2})
    assert sum(spec.size for spec in network_of(config).tensors(config)["weights"]) == 174_138
    forward = sum(each.flop for each in model.convolutions) + 2 * 64 * 10
    assert round(forward / 1e6, 1) == 53.3
    assert round(model.step_flop(1, 1) / 1e6) == 159
    assert model.step_flop(128, 1) == 128 * model.step_flop(1, 1)


@pytest.mark.parametrize(("name", "weights"), [("resnet14-cifar", 14), ("resnet20", 20), ("resnet56", 56)])
def test_presets_are_models_by_name(name: str, weights: int) -> None:
    config = TrainConfig.from_dict({"model": name})
    assert config.model.name == name
    assert TrainConfig.from_dict(config.to_dict()) == config
    assert config.to_dict()["model"]["network"] == "resnet"
    model: Any = model_from(name)
    assert sum(each.size == 3 for each in model.convolutions) + 1 == weights


def test_its_defaults_are_its_own() -> None:
    config = TrainConfig.from_dict({"model": "resnet"})
    assert (config.seq, config.data, config.optimizer, config.momentum) == (1, "synthetic", "sgd", 0.9)
    assert config.weight_decay > 0
    plain = TrainConfig.from_dict({"model": "resnet", "momentum": 0.0, "weight_decay": 0.0})
    assert (plain.momentum, plain.weight_decay) == (0.0, 0.0)
    assert TrainConfig.from_dict(plain.to_dict()) == plain
    adamw = TrainConfig.from_dict({"model": "resnet", "optimizer": "adamw"})
    assert (adamw.momentum, adamw.weight_decay, adamw.lr) == (0.0, 0.0, 1e-4)
    assert TrainConfig.from_dict({"model": "tiny"}).seq == 64
    assert TrainConfig(Resnet()) == config
    assert TrainConfig(Resnet(), lr=1e-4, momentum=0.0).momentum == 0.0
    assert all(type(value) in (str, int, float) for name, value in vars(config).items() if name in OF_NETWORK)
    with pytest.raises(ConfigError, match="seq = 64"):  # a given value stays, also TrainConfig's default
        TrainConfig(Resnet(), seq=64)


@pytest.mark.parametrize(
    ("settings", "field", "accepted"),
    [
        ({"seq": 2}, "seq", r"context \(1\)"),
        ({"data": "stdlib"}, "data", "synthetic, cifar10:PATH, cifar100:PATH: network resnet reads images"),
        ({"data": "cifar10:"}, "data", "cifar10:PATH, a folder or a .bin file"),
        ({"data": "cifar10:x"}, "data", "a resnet with side 32 and classes 10, which cifar10 has"),
        ({"precision": "bf16"}, "precision", "fp32, since network resnet has no other"),
        ({"distribution": "uniform"}, "distribution", "network resnet does not read it"),
        ({"shuffle": "step"}, "shuffle", "one of epoch, none"),
        ({"val_samples": -1}, "val_samples", "0 to"),
        ({"model": {"network": "resnet", "side": 3}}, "model.side", "4 to 512"),
        ({"model": {"network": "resnet", "vocab": 3}}, "model.vocab", "no such setting of resnet; known: blocks"),
        ({"model": "tiny", "seq": 8, "data": "cifar10:x"}, "data", "network gpt2 reads tokens"),
        ({"model": "tiny", "seq": 8, "shuffle": "none"}, "shuffle", "network gpt2 does not read it"),
    ],
)
def test_settings_that_are_refused(settings: dict[str, Any], field: str, accepted: str) -> None:
    given = {"model": resnets.SMALL, "batch": 2, **settings}
    with pytest.raises(ConfigError, match=accepted) as raised:
        TrainConfig.from_dict(given)
    assert field in [each.field for each in (raised.value, *raised.value.others)]


def test_initial_weights_have_their_distributions_and_follow_the_seed() -> None:
    config = TrainConfig.from_dict({"model": "resnet14-cifar"})
    network = network_of(config)
    weights = {spec.name: np.empty(spec.shape, np.float32) for spec in network.tensors(config)["weights"]}
    network.initialise(config, weights)
    assert weights["layer3.1.conv2.weight"].std() == pytest.approx((2 / (64 * 9)) ** 0.5, rel=0.02)
    assert 0.9 * (6 / 64) ** 0.5 < np.abs(weights["fc.weight"]).max() <= (6 / 64) ** 0.5
    assert np.abs(weights["fc.bias"]).max() <= 1 / 8
    again = {name: np.empty_like(array) for name, array in weights.items()}
    network.initialise(config, again)
    assert all(np.array_equal(weights[name], again[name]) for name in weights)


def test_weights_decay_and_biases_do_not() -> None:
    config = resnets.config(steps=1, weight_decay=0.5)
    memory = Memory(plan(config))
    fill(memory, config, network_of(config).data(config))
    assert memory.arrays["settings"].tolist()[-3:] == [0.5, 0.0, 0.0]  # of weights, of biases, limit of the norm


@pytest.mark.parametrize(("batch", "threads", "expected"), [(128, 2, 5), (128, 64, 1), (4, 2, 1), (1, 8, 1)])
def test_automatic_slices_fit_a_cache_with_two_a_thread(batch: int, threads: int, expected: int) -> None:
    config = TrainConfig.from_dict(
        {"model": "resnet14-cifar", "batch": batch, "threads": threads, "cores": list(range(threads))}
    )
    assert slicing.sizes(config) == (expected, 1)
    wide = Resnet(width=64, side=224)
    assert wide.slices(128, 1, 2, (None, None)) == (1, 1)
    assert wide.slices(128, 1, 2, (3, None)) == (3, 1)


@pytest.mark.parametrize("split", ["train", "val"])
def test_synthetic_classes_are_learnt(split: str) -> None:
    """More than 90 % of all images for training, and of those for validation, which no step reads, after 200 steps with
    the default settings of SGD."""
    config = TrainConfig.from_dict({
        "model": {"network": "resnet", "blocks": 1, "width": 8, "classes": 10, "side": 8}, "batch": 32, "steps": 200,
        "scheduler": "serial", "val_samples": 100, "evaluate_every": 200, "split": split,
    })  # fmt: skip
    result = train.train(config)
    assert result.losses[-1] < 0.1 * result.losses[0]
    assert result.accuracy[0] < 0.5
    assert sum(result.accuracy[-10:]) / 10 > 0.9
    assert [each["step"] for each in result.evaluations if each["accuracy"] > 0.9] == [200]
