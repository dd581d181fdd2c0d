"""A ragged configuration of a VGG: slices that do not divide the batch, odd sides, channels of no whole vector.

With some other seeds a value is within rounding of 0 or of its window's maximum: float32 and float64 then differ in a
gradient, in PyTorch too.
"""

from __future__ import annotations

from typing import Any

from gpt2core.spec.config import TrainConfig

SMALL = {"network": "vgg", "width": 3, "hidden": 6, "classes": 7, "side": 45}
COMMON = {"model": SMALL, "batch": 5, "batch_slice": 2, "steps": 10, "warmup": 0, "seed": 4, "lr": 1e-2,
          "weight_decay": 0.05, "blas": "own", "scheduler": "serial", "allow_oversubscription": True}  # fmt: skip


def config(**settings: Any) -> TrainConfig:
    return TrainConfig.from_dict({**COMMON, **settings})
