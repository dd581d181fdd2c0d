"""Memory of a run, computed without loading a trainer."""

from __future__ import annotations

from gpt2core.networks.memory import memory_bytes
from gpt2core.spec.config import TrainConfig

MAX_SLICES = 1 << 16  # planning looks at every slice


def slices(config: TrainConfig) -> int:
    """Upper bound of the number of slices in a batch; automatic slices are larger."""
    groups = -(-config.batch // (config.batch_slice or config.batch))
    return groups * -(-config.seq // (config.token_slice or config.seq))


def arenas_bytes(config: TrainConfig) -> dict[str, int]:
    """Each arena of a run, exact."""
    return dict(memory_bytes(config))


def run_memory_bytes(config: TrainConfig) -> int:
    """All arenas of a run, exact."""
    return sum(arenas_bytes(config).values())
