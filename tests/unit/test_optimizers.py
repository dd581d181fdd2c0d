"""Optimizers and learning-rate schedules of a configuration: data, checks, memory, and bits of training."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpt2core.networks.memory import memory_bytes
from gpt2core.run.train import train
from gpt2core.spec.config import DEFAULTS, TrainConfig
from gpt2core.spec.errors import ConfigError
from gpt2core.spec.models import ModelConfig
from gpt2core.spec.optimizers import OPTIMIZERS, SCHEDULES, learning_rates
from taskloom.analysis.report.colours import op_colour

SMALL = TrainConfig(
    model=ModelConfig(layers=2, heads=2, channels=32, vocab=61, context=16), batch=3, seq=10, steps=4, warmup=0,
    batch_slice=2, token_slice=4, data="synthetic", blas="own", scheduler="serial", allow_oversubscription=True,
    optimizer="sgd", lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01, lr_schedule="cosine", lr_warmup=1,
)  # fmt: skip


def test_a_bare_configuration_loads_nothing_above_spec() -> None:
    program = (
        "import sys; from gpt2core.spec.config import TrainConfig; TrainConfig(); TrainConfig(optimizer='sgd'); "
        "print(sorted({name.split('.')[1] for name in sys.modules if name.startswith('gpt2core.')}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['spec']"


@pytest.mark.parametrize("component", [*OPTIMIZERS.values(), *SCHEDULES.values()])
def test_a_component_reads_settings_that_exist(component: Any) -> None:
    assert set(component.settings) <= set(DEFAULTS)
    assert set(getattr(component, "state", {}).values()) <= {"", *component.settings}


@pytest.mark.parametrize(
    ("settings", "setting", "accepted"),
    [
        ({"optimizer": "adam"}, "optimizer", "one of adamw, sgd"),
        ({"optimizer": ["sgd"]}, "optimizer", "one of adamw, sgd"),
        ({"momentum": 0.9}, "momentum", "the default 0.0, since optimizer adamw reads lr, beta1, beta2, eps, weight_d"),
        ({"optimizer": "sgd", "beta1": 0.8}, "beta1", "the default 0.9, since optimizer sgd reads lr, mom"),
        ({"optimizer": "sgd", "nesterov": True}, "nesterov", "false without momentum"),
        ({"optimizer": "sgd", "nesterov": 1}, "nesterov", "true or false"),
        ({"optimizer": "sgd", "momentum": 1.0}, "momentum", "a number of 0 or more and below 1"),
        ({"lr_schedule": "linear"}, "lr_schedule", "one of constant, cosine, steps"),
        ({"lr_final": 0.1}, "lr_final", "the default 0.0, since lr_schedule constant reads none"),
        ({"lr_schedule": "steps", "lr_warmup": 2}, "lr_warmup", "since lr_schedule steps reads lr_decay"),
        ({"lr_schedule": "cosine", "lr_warmup": 12}, "lr_warmup", "less than steps .12."),
        ({"lr_schedule": "steps", "lr_every": 0}, "lr_every", "an integer from 1"),
    ],
)  # fmt: skip
def test_what_is_not_accepted_is_named(settings: dict[str, Any], setting: str, accepted: str) -> None:
    with pytest.raises(ConfigError, match=f"^{setting} = .*{accepted}"):
        TrainConfig.from_dict(settings)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, []),
        ({"lr_schedule": "steps", "lr_decay": 0.5, "lr_every": 2}, [1, 1, 0.5, 0.5, 0.25, 0.25]),
        ({"lr_schedule": "steps", "lr_decay": 0.5, "lr_every": 1, "lr_hold": 3}, [1, 1, 1, 0.5, 0.25, 0.125]),
        ({"lr_schedule": "cosine"}, [1, 0.9330127, 0.75, 0.5, 0.25, 0.0669873]),
        ({"lr_schedule": "cosine", "lr_warmup": 4, "lr_final": 0.5}, [0.25, 0.5, 0.75, 1, 1, 0.75]),
    ],
)
def test_learning_rates(settings: dict[str, Any], expected: list[float]) -> None:
    config = TrainConfig.from_dict({"steps": 6, "lr": 2.0, **settings})
    assert learning_rates(config) == pytest.approx([2 * factor for factor in expected])


def test_an_optimizer_has_memory_for_what_it_needs() -> None:
    adamw, plain, momentum = (
        memory_bytes(dataclasses.replace(TrainConfig(), **settings))
        for settings in ({}, {"optimizer": "sgd"}, {"optimizer": "sgd", "momentum": 0.9})
    )
    assert (plain["optimizer"], momentum["optimizer"]) == (0, adamw["optimizer"] // 2)
    assert momentum["optimizer"] == momentum["weights"]


def test_every_scheduler_and_fusion_gives_the_same_bits() -> None:
    runs = [
        train(dataclasses.replace(SMALL, **how))
        for how in (
            {}, {"fusion": "none"}, {"fusion": "rows"}, {"scheduler": "fork-join", "threads": 2},
            {"scheduler": "task", "threads": 3, "sync": "none"},
        )
    ]  # fmt: skip
    assert len({(tuple(run.losses), run.weights_sha256) for run in runs}) == 1
    assert {op.op for op in runs[1].ops if op.phase == "update"} == {"sgd"}


@pytest.mark.parametrize("settings", [{"lr_schedule": "constant", "lr_warmup": 0}, {"nesterov": False}, {"lr": 0.11}])
def test_each_setting_reaches_the_weights(settings: dict[str, Any]) -> None:
    assert train(dataclasses.replace(SMALL, **settings)).weights_sha256 != train(SMALL).weights_sha256


def test_reports_and_pages_give_each_optimizer_the_colour_of_updates() -> None:
    script = (Path(__file__).parents[2] / "server/ui/plots/scale.js").read_text(encoding="utf-8")
    (names,) = re.findall(r"\[\[(.*)\], 'update-op'\]", script)
    for name in OPTIMIZERS:
        assert op_colour(name) == "var(--update-op)"
        assert f"'{name}'" in names
