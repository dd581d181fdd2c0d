"""The peak of a run's resident memory is its arenas by the formula, and what every run has."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpt2core.networks.memory import memory_bytes
from gpt2core.process import launch
from gpt2core.run import prepare
from gpt2core.spec.config import TrainConfig

pytestmark = pytest.mark.slow
EVERY_RUN_BYTES = 60 << 20  # interpreter, NumPy, compiled code, libraries, plan
MODELS: dict[str, dict[str, Any]] = {
    "gpt2": {
        "model": {"layers": 4, "heads": 8, "channels": 256, "vocab": 8192, "context": 128}, "batch": 4, "seq": 128,
    },
    "lstm": {
        "model": {"network": "lstm", "embedding": 256, "hidden": 256, "layers": 3, "vocab": 8192, "context": 128},
        "batch": 8, "seq": 64,
    },
    "resnet": {"model": "resnet14-cifar", "batch": 64},
    "vgg": {"model": {"network": "vgg", "width": 16, "hidden": 64}, "batch": 64},
    "seq2seq": {
        "model": {"network": "seq2seq", "embedding": 256, "hidden": 512, "vocab": 8192}, "batch": 8, "seq": 64,
    },
    "reader": {
        "model": {"network": "reader", "embedding": 256, "hidden": 256, "vocab": 8192}, "batch": 8, "seq": 128,
    },
}  # fmt: skip


def measured(config: TrainConfig, path: Path) -> dict[str, Any]:
    """The result of a run in a process of its own, which compiles nothing: what it needs is compiled before."""
    while True:
        subprocess.run(
            launch.command(path), input=json.dumps(config.to_dict()), text=True, check=True, capture_output=True
        )
        result: dict[str, Any] = json.loads(path.read_text())
        if result["compiled"] == 0:
            return result


@pytest.mark.parametrize("mode", ["train", "infer"])
@pytest.mark.parametrize("network", MODELS)
def test_peak_memory_is_the_formula_and_60_mib(network: str, mode: str, tmp_path: Path) -> None:
    config = TrainConfig.from_dict({
        **MODELS[network], "mode": mode, "steps": 2, "warmup": 1, "data": "synthetic", "threads": 2, "blas": "own",
        "allow_oversubscription": True,
    })  # fmt: skip
    formula = sum(memory_bytes(prepare.plan(config).config).values())
    peak = measured(config, tmp_path / "result.json")["memory_bytes"]["peak_rss"]
    assert formula <= peak <= 1.03 * formula + EVERY_RUN_BYTES
