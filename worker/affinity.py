"""Divides the cores between the trainer's team and the agent."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Sequence
from pathlib import Path

from gpt2core.node.topology import spread
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import ConfigError


def team_cores(config: TrainConfig, worker_cores: Sequence[int]) -> tuple[int, ...]:
    """Cores for the threads of all ranks, in order. Raises ConfigError for cores that this worker does not have."""
    if config.cores is not None:
        if not set(config.cores) <= set(worker_cores):
            raise ConfigError("cores", list(config.cores), "cores of this worker: " + ",".join(map(str, worker_cores)))
        return config.cores
    if config.total_threads > len(worker_cores) and not config.allow_oversubscription:
        most = f"at most the {len(worker_cores)} cores of this worker"
        raise ConfigError("threads", config.threads, most + (f" / ranks ({config.ranks})" if config.ranks > 1 else ""))
    return spread(worker_cores)[: config.total_threads]


def spare_cores(process_cores: Collection[int], measured: Collection[int]) -> tuple[int, ...]:
    """Cores the agent may use without disturbing the team; empty if there are none."""
    return tuple(sorted(set(process_cores) - set(measured)))


def move_agent(cores: Collection[int]) -> None:
    """Move every thread of this process to these cores; later threads inherit them."""
    try:
        threads = [int(thread.name) for thread in Path("/proc/self/task").iterdir() if thread.name.isdecimal()]
    except OSError:
        threads = []
    for thread in threads or [0]:  # 0: the calling one, where the others are hidden
        with contextlib.suppress(OSError):  # a thread may end meanwhile, or a sandbox forbids it
            os.sched_setaffinity(thread, cores)


def raise_priority() -> None:
    """Raise the agent's priority, where the system allows it, so that it answers beside a busy trainer."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, -5)
