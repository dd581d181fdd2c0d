"""Ragged configurations of a seq2seq, and folders of pairs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpt2core.data import pairs
from gpt2core.data.sources import write_tokens
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.data import END
from tests.support.networks import cases

MODEL = {"network": "seq2seq", "embedding": 6, "hidden": 10, "vocab": 23, "context": 32}
COMMON = {**cases.COMMON, "model": MODEL, "seq": 10, "batch_slice": 2, "token_slice": 4, "steps": 10}
SOURCES = [[2, 3, 4], [5], [6, 7, 8, 9], [10, 11], [12, 13, 14]]
TARGETS = [[15, 16], [17, 18, 19], [20], [21, 22, 2], [3, 4, 5, 6]]


def config(**settings: Any) -> TrainConfig:
    """Slices that do not divide the batch, chunks that do not divide time."""
    return TrainConfig.from_dict({**COMMON, **settings})


def inference(**settings: Any) -> TrainConfig:
    """The same in mode infer."""
    given = {name: value for name, value in COMMON.items() if name != "lr"}
    return TrainConfig.from_dict({**given, "mode": "infer", **settings})


def write(folder: Path, sources: Sequence[Sequence[int]] = SOURCES, targets: Sequence[Sequence[int]] = TARGETS) -> str:
    """Write a folder of pairs; the setting `data` that names it."""
    folder.mkdir(exist_ok=True)
    for name, side in ((pairs.SOURCE, sources), (pairs.TARGET, targets)):
        write_tokens(folder / name, np.array([token for words in side for token in (*words, END)], np.int64))
    return f"pairs:{folder}"
