"""Interface of a scheduler. A scheduler is a folder here and a line in gpt2core/spec/schedulers.py.

`prepare` returns an object that runs the stages of a job on its own threads. Every scheduler runs tasks by
dispatch.run_task, which also records them, so that all are measured alike.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gpt2core.spec.schedulers import Facts

if TYPE_CHECKING:  # loaded by trainers only
    import numpy as np
    from numpy.typing import NDArray

    from gpt2core.measure.tracing import Record
    from gpt2core.schedulers.dispatch import Dispatch
    from gpt2core.step.graph import Graph
    from gpt2core.step.ops import Program


@dataclass(frozen=True)
class Job:
    """A bound program, its graph, and the cores to run it on: one for each thread, repeated if oversubscribed."""

    program: Program
    graph: Graph  # its waits are those of the setting `sync`
    bound: Dispatch
    control: NDArray[np.int64]  # cells: step/control.py
    cores: tuple[int, ...]
    options: Mapping[str, Any] = field(default_factory=dict)  # the scheduler's own settings; without one, its default


@dataclass(frozen=True)
class Stage:
    """Consecutive steps that run without interruption, and how they are watched.

    cost_s: an estimate of each task's seconds. The thread that called `run` calls `watch` from time to time and raises
    its exceptions; each thread runs inside the context `inside(thread)`.
    """

    first: int
    end: int
    record: Record
    cost_s: Sequence[float]
    watch: Callable[[], None]
    inside: Callable[[int], AbstractContextManager[None]]


class Prepared(ABC):
    """A scheduler that is ready to run a job."""

    observed: list[tuple[int, ...]]  # affinity of each thread, read back inside it; of the last stage

    @abstractmethod
    def run(self, stage: Stage) -> None:
        """Run the steps [stage.first, stage.end), fewer if control[STOP] is set; returns when no task runs any more.

        control[STEPS_DONE] counts complete steps, and stage.record holds when each ended.
        """

    def stuck(self) -> list[str]:
        """Describe the waiting tasks and their predecessors when a run stalls; empty if unknown."""
        return []


class Scheduler(Facts, ABC):
    """Decides which task runs when, and where. Its module loads neither Numba nor NumPy."""

    def load(self, options: Mapping[str, Any], cores: Sequence[int]) -> None:
        """Load foreign libraries, such as a runtime, before anything is allocated; by default none.

        Raises CoreError if this machine lacks it.
        """

    @abstractmethod
    def prepare(self, job: Job) -> Prepared:
        """Prepare a job. Raises CoreError if this machine lacks something that it needs."""

    def environment(self, options: Mapping[str, Any]) -> Mapping[str, Any]:  # noqa: ARG002
        """Entries for a result's environment, such as a runtime's version; none by default."""
        return {}
