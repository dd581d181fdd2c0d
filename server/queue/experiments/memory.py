"""Memory of a run, computed without loading a trainer."""

from __future__ import annotations

import functools

import orjson

from gpt2core.networks.memory import memory_bytes
from gpt2core.spec.config import TrainConfig
from taskloom.server.queue.experiments import canonical

MAX_SLICES = 1 << 16  # the trainer plans tasks for every slice


def slices(config: TrainConfig) -> int:
    """Number of slices of a batch, as requested: an automatic slice counts as the whole batch or sequence."""
    groups = -(-config.batch // (config.batch_slice or config.batch))
    return groups * -(-config.seq // (config.token_slice or config.seq))


def arenas_bytes(config: TrainConfig) -> dict[str, int]:
    """Exact size of each arena of a run."""
    return dict(memory_bytes(config))


def run_memory_bytes(config: TrainConfig) -> int:
    """Exact size of all arenas of a run; of several ranks, of as many as rank 0's."""
    return _of_settings(canonical.key(config.to_dict()))


@functools.lru_cache(maxsize=1024)  # the same configurations are submitted again and again
def _of_settings(settings: bytes) -> int:
    config = TrainConfig.from_dict(orjson.loads(settings))
    return config.ranks * sum(arenas_bytes(config).values())
