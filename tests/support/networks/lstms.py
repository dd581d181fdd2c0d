"""Ragged configurations of LSTMs: slices that do not divide the batch, chunks that do not divide time, odd sizes."""

from __future__ import annotations

from typing import Any

from gpt2core.spec.config import TrainConfig

PLAIN = {"network": "lstm", "embedding": 12, "hidden": 9, "layers": 3, "vocab": 61, "context": 16}
TIED = {"network": "lstm", "embedding": 10, "hidden": 10, "layers": 2, "vocab": 61, "context": 16, "tied": True}
CASES: dict[str, dict[str, Any]] = {
    "lstm": {"model": PLAIN},
    "lstm_tied": {"model": TIED, "weight_decay": 0.1, "grad_clip": 0.9},
    "lstm_carried": {"model": PLAIN, "carry_state": True, "init_scale": 0.4},
}
COMMON = {"batch": 5, "seq": 10, "batch_slice": 2, "token_slice": 4, "steps": 10, "warmup": 0, "lr": 1e-2,
          "data": "synthetic", "blas": "own", "scheduler": "serial", "allow_oversubscription": True}  # fmt: skip


def config(case: str = "lstm", **settings: Any) -> TrainConfig:
    return TrainConfig.from_dict({**COMMON, **CASES[case], **settings})
