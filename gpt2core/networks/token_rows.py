"""Tensors that networks on tokens share: the rows' tokens, and each row's place in the batch."""

from __future__ import annotations

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


def data(config: TrainConfig, time_major: bool = False) -> dict[str, NDArray[np.generic]]:
    """The stream of tokens and the tables of rows, in the order of slicing.row_tables.

    Raises InputError as gpt2core.data.sources.open_tokens.
    """
    import numpy as np

    from gpt2core.data import sources

    sample, position = (np.array(table, np.int32) for table in slicing.row_tables(config, time_major))
    return {"stream": sources.open_tokens(config), "row_batch": sample, "row_time": position}
