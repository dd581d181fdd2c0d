"""Memory that a run needs, computed without loading a trainer."""

from __future__ import annotations

from gpt2core.networks.memory import memory_bytes
from gpt2core.spec.config import TrainConfig

MAX_SLICES = 1 << 16  # planning looks at every slice


def slices(config: TrainConfig) -> int:
    """Into how many slices the settings cut a batch, at most: automatic ones are never that small."""
    groups = -(-config.batch // (config.batch_slice or config.batch))
    return groups * -(-config.seq // (config.token_slice or config.seq))


def arenas_bytes(config: TrainConfig) -> dict[str, int]:
    """Each arena of a run, exact."""
    return dict(memory_bytes(config))


def run_memory_bytes(config: TrainConfig) -> int:
    """All arenas of a run, exact."""
    return sum(arenas_bytes(config).values())
