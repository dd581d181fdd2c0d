"""Ragged configurations of the toy networks: slices that do not divide the batch, chunks that do not divide time."""

from __future__ import annotations

from typing import Any

from gpt2core.spec.config import TrainConfig
from gpt2core.spec.fields import SYNCS

COMMON = {"batch": 5, "steps": 6, "warmup": 0, "lr": 1e-2, "data": "synthetic", "blas": "own", "scheduler": "serial",
          "allow_oversubscription": True}  # fmt: skip
SHAPES: dict[str, dict[str, Any]] = {
    "elman": {"seq": 10, "batch_slice": 2, "token_slice": 4},
    "convolutions": {"seq": 1, "batch_slice": 2, "token_slice": 1},
}
HOW: list[dict[str, Any]] = [
    {"scheduler": "serial"},
    *({"scheduler": "fork-join", "threads": threads} for threads in (1, 2, 3, 8)),
    {"scheduler": "fork-join", "threads": 3, "assignment": "dynamic"},
    *({"scheduler": "task", "sync": sync, "threads": threads} for sync in SYNCS for threads in (1, 2, 3, 8)),
]


def config(network: str, **settings: Any) -> TrainConfig:
    """The configuration of a registered network."""
    return TrainConfig.from_dict({"model": {"network": network}, **COMMON, **SHAPES[network], **settings})
