"""Inference on the images of a split: its losses and accuracy are those of training, before the update."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpt2core.data.images import NotEnoughImages
from gpt2core.gemm import libraries as gemm
from gpt2core.gemm import table
from gpt2core.networks import program
from gpt2core.networks.memory import plan
from gpt2core.networks.network import network_of
from gpt2core.run import prepare, train
from gpt2core.run.fill import fill
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import ConfigError
from tests.support import poison
from tests.support.networks import resnets
from tests.support.networks.inferring import computed

RECORD = 3073
pytestmark = pytest.mark.usefixtures("no_canary")


def infer(**settings: object) -> TrainConfig:
    given = {name: value for name, value in resnets.COMMON.items() if name not in ("lr", "weight_decay")}
    return TrainConfig.from_dict({**given, "mode": "infer", "score": True, **settings})


@pytest.mark.parametrize("logits", ["all", "last", "none-kept"])
def test_loss_and_accuracy_are_those_of_training(logits: str) -> None:
    training = computed(resnets.config(steps=1), "backward").arrays
    found = computed(infer(steps=1, logits=logits)).arrays
    np.testing.assert_allclose(found["loss"], training["loss"], rtol=1e-6)
    np.testing.assert_array_equal(found["right"], training["right"])
    assert found["accuracies"].tolist() == [training["right"].mean()]


def test_every_scheduler_has_the_same_accuracy() -> None:
    fork_join = {"scheduler": "fork-join", "threads": 2}
    ways: list[dict[str, Any]] = [{}, fork_join, {"scheduler": "task", "sync": "none", "threads": 3}]
    found = [train.train(infer(steps=3, **how)) for how in ways]
    assert len(found[0].accuracy) == 3
    assert all((each.losses, each.accuracy) == (found[0].losses, found[0].accuracy) for each in found)
    assert train.train(infer(steps=1, score=False)).accuracy == []


@pytest.mark.parametrize("logits", ["all", "none-kept"])
def test_tasks_read_and_write_what_they_declare(logits: str) -> None:
    config = infer(steps=1, logits=logits, val_samples=6, split="val")
    data = network_of(config).data(config)
    libraries = table.choose(gemm.load(config.blas, config.precision), [], prepare.silent)
    poison.check(program.build(config), plan(config), lambda memory: fill(memory, config, data), libraries)


def test_a_split_has_its_own_images(tmp_path: Path) -> None:
    """Of 5 files of 2 images and a test file of 3, three images are for validation."""
    for number in range(1, 7):
        name = f"data_batch_{number}.bin" if number < 6 else "test_batch.bin"
        (tmp_path / name).write_bytes((bytes([number]) + bytes(RECORD - 1)) * (2 if number < 6 else 3))
    model = {"network": "resnet", "blocks": 1, "width": 4}

    def labels(split: str | None) -> list[int]:
        config = infer(model=model, data=f"cifar10:{tmp_path}", batch=2, val_samples=3, split=split, shuffle="none")
        data = network_of(config).data(config)
        return data["samples"][data["order"]].tolist()

    assert labels(None) == labels("train") == [1, 1, 2, 2, 3, 3, 4]
    assert labels("val") == [4, 5, 5]
    assert labels("test") == [6, 6, 6]
    config = infer(model=model, data=f"cifar10:{tmp_path}", batch=4, val_samples=3, split="test")
    with pytest.raises(NotEnoughImages, match="3 images for tests; a batch needs 4"):
        network_of(config).data(config)


@pytest.mark.parametrize(
    ("settings", "field", "accepted"),
    [
        ({"split": "validation"}, "split", "one of train, val, test"),
        ({"split": "test"}, "split", "train or val, since synthetic data has no test images"),
        ({"split": "val"}, "val_samples", "1 or more, which split val reads"),
        ({"split": "val", "val_samples": 0}, "val_samples", "1 or more, which split val reads"),
        ({"mode": "train", "score": False, "split": "train"}, "split", "mode train trains on the images for training"),
        ({"model": "tiny", "seq": 8, "split": "val", "data": "stdlib"}, "split", "network gpt2 does not read it"),
    ],
)  # fmt: skip
def test_splits_that_are_refused(settings: dict[str, Any], field: str, accepted: str) -> None:
    with pytest.raises(ConfigError, match=accepted) as raised:
        infer(**settings)
    assert field in [each.field for each in (raised.value, *raised.value.others)]
