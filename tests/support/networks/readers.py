"""Ragged configurations of a reader, and folders of cloze records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpt2core.data import cloze
from gpt2core.data.sources import write_tokens
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.data import END
from tests.support.networks import cases

MODEL = {"network": "reader", "embedding": 6, "hidden": 5, "vocab": 23, "query": 6, "context": 32}
COMMON = {**cases.COMMON, "model": MODEL, "seq": 10, "batch_slice": 2, "token_slice": 4, "steps": 10}
DOCUMENTS = [[2, 3, 4, 3], [5], [6, 7, 8, 9, 6], [10, 11], [12, 13, 14]]
QUERIES = [[2, 1, 4], [1], [1, 7], [10, 1], [12, 1, 14, 2, 3]]
ANSWERS = [3, 5, 6, 11, 13]


def config(**settings: Any) -> TrainConfig:
    """Slices that do not divide the batch, chunks that do not divide time."""
    return TrainConfig.from_dict({**COMMON, **settings})


def inference(**settings: Any) -> TrainConfig:
    """The same in mode infer."""
    given = {name: value for name, value in COMMON.items() if name != "lr"}
    return TrainConfig.from_dict({**given, "mode": "infer", **settings})


def write(
    folder: Path, documents: Sequence[Sequence[int]] = DOCUMENTS, queries: Sequence[Sequence[int]] = QUERIES,
    answers: Sequence[int] = ANSWERS,
) -> str:  # fmt: skip
    """Write a folder of records; the setting `data` that names it."""
    folder.mkdir(exist_ok=True)
    for name, side in ((cloze.DOCUMENT, documents), (cloze.QUERY, queries)):
        write_tokens(folder / name, np.array([token for words in side for token in (*words, END)], np.int64))
    write_tokens(folder / cloze.ANSWER, np.array(answers, np.int64))
    return f"cloze:{folder}"
