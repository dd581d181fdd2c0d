"""Ragged configurations of a ResNet: slices that do not divide the batch, odd sides, channels of no whole vector."""

from __future__ import annotations

from typing import Any

from gpt2core.spec.config import TrainConfig

SMALL = {"network": "resnet", "blocks": 2, "width": 5, "classes": 7, "side": 9}
COMMON = {"model": SMALL, "batch": 5, "batch_slice": 2, "steps": 10, "warmup": 0, "lr": 1e-2, "weight_decay": 0.05,
          "blas": "own", "scheduler": "serial", "allow_oversubscription": True}  # fmt: skip


def config(**settings: Any) -> TrainConfig:
    return TrainConfig.from_dict({**COMMON, **settings})
