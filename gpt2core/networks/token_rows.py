"""Tensors that networks on tokens share: the rows' tokens, and each row's place in the batch."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gpt2core.spec.config import TrainConfig
from gpt2core.step import slicing
from gpt2core.step.tensors import TensorSpec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

TABLES = {"inputs": False, "targets": False, "row_batch": True, "row_time": True}  # whether it is constant


def specs(config: TrainConfig) -> list[TensorSpec]:
    """Each row's token and its successor, its sample in the batch and its position in the sample."""
    return [TensorSpec(name, (config.batch * config.seq,), "int32", fixed) for name, fixed in TABLES.items()]


def head_specs(config: TrainConfig, width: int, columns: int, dtype: str = "float32") -> dict[str, list[TensorSpec]]:
    """Logits and losses, by their arenas (language.head): `width` elements of a row become `columns` logits."""
    rows, none_kept = config.batch * (1 if config.logits == "last" else config.seq), config.logits == "none-kept"
    longest = math.prod(slicing.sizes(config))
    logits = TensorSpec("logits", (config.threads, longest, columns) if none_kept else (rows, columns), dtype)
    last = [TensorSpec("last", (rows, width)), TensorSpec("last_targets", (rows,), "int32")]
    return {
        "activations": [
            *([] if none_kept else [logits]),
            *([TensorSpec("loss", (rows,))] if "loss" in config.phases else []),
            *(last[: 1 + config.score] if config.logits == "last" else []),
        ],
        "temporary": [logits] if none_kept else [],
    }


def data(config: TrainConfig, time_major: bool = False) -> dict[str, NDArray[np.generic]]:
    """The stream of tokens and the tables of rows, in the order of slicing.row_tables.

    Raises InputError as gpt2core.data.sources.open_tokens.
    """
    import numpy as np

    from gpt2core.data import sources

    sample, position = (np.array(table, np.int32) for table in slicing.row_tables(config, time_major))
    return {"stream": sources.open_tokens(config), "row_batch": sample, "row_time": position}
