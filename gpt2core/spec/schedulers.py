"""Registry of schedulers, and the properties of each that need no trainer."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from gpt2core.spec.errors import ConfigError
from gpt2core.spec.registry import Registry

if TYPE_CHECKING:
    from gpt2core.spec.config import TrainConfig

# Scheduler by name: the module whose SCHEDULER implements schedulers/scheduler.py. It is imported on first use, its
# compiled part only when it runs.
SCHEDULERS = {
    "serial": "gpt2core.schedulers.serial.scheduler",
    "fork-join": "gpt2core.schedulers.forkjoin.scheduler",
    "task": "gpt2core.schedulers.task.scheduler",
    "omp-for": "gpt2core.schedulers.openmp.omp_for",
    "omp-task": "gpt2core.schedulers.openmp.omp_task",
}
KNOWN = Registry("schedulers", SCHEDULERS, "SCHEDULER")  # with those of other packages
# OpenMP runtimes in the order in which AUTO tries them, finest granularity first (docs/decisions/0018).
RUNTIMES = ("libgomp", "libomp", "libiomp5")
AUTO = "auto"


class Facts:
    """Properties of a scheduler, known without loading a trainer."""

    name: ClassVar[str]
    # What a task waits for: the previous task, all tasks of the previous op, or its inputs.
    order: ClassVar[Literal["program", "ops", "graph"]]
    options: ClassVar[tuple[str, ...]] = ()  # settings of TrainConfig that only it reads
    most_threads: ClassVar[int | None] = None
    # Whether the scheduling time of every thread is known; else only that of thread 0, which creates the tasks.
    tells_scheduling: ClassVar[bool] = True
    second_moment: ClassVar[bool] = False  # whether a task that is complete only later holds no thread
    holds_threads: ClassVar[bool] = False  # whether tasks may run in another order, and one that waits holds its thread
    finest: ClassVar[Mapping[str, Any]] = {}  # settings with the least overhead per task, for METG

    def overlaps(self, sync: str) -> bool:
        """Whether tasks of a phase may overlap with tasks of the next phase."""
        return self.order == "graph" and sync != "phase"

    def chosen(self, config: TrainConfig) -> dict[str, Any]:
        """The values of its options in a run."""
        return {name: getattr(config, name) for name in self.options}

    def runtime_of(self, config: TrainConfig) -> str | None:
        """The OpenMP runtime that a run needs of its node, which may be AUTO; None if it needs none."""
        return config.runtime if "runtime" in self.options else None

    def check(self, config: TrainConfig) -> None:
        """Raise ConfigError for a setting that the scheduler does not support; by default: too many threads."""
        if self.most_threads is not None and config.threads > self.most_threads:
            raise ConfigError("threads", config.threads, f"at most {self.most_threads} with scheduler {self.name}")


def scheduler(name: object) -> Any:
    """The scheduler of that name. Raises ConfigError if there is none."""
    if not isinstance(name, str) or name not in KNOWN:
        raise ConfigError("scheduler", name, "one of " + ", ".join(KNOWN))
    return _named(name, KNOWN[name])


@functools.cache  # import_module would take as long as all other checks of a configuration
def _named(name: str, module: str) -> Any:  # noqa: ARG001
    return KNOWN.component(name)


def facts(name: str) -> Facts | None:
    """Properties of a scheduler. None if this version has no such scheduler; results of other versions may name one."""
    found: Facts | None = scheduler(name) if name in KNOWN else None
    return found


def parallel() -> tuple[str, ...]:
    """Names of the schedulers that can use several threads."""
    return tuple(name for name in KNOWN if scheduler(name).most_threads is None)


def check_runtime(value: object) -> None:
    """Raise ConfigError unless value names an OpenMP runtime or is a path, that is, contains a slash."""
    if not isinstance(value, str) or "\0" in value or (value not in (AUTO, *RUNTIMES) and "/" not in value):
        raise ConfigError("runtime", value, ", ".join((AUTO, *RUNTIMES)) + ", or the path of a library")
