"""omp-for: each op's tiles are a worksharing loop of one parallel region; a barrier follows."""

from __future__ import annotations

from gpt2core.schedulers.openmp.scheduler import OpenMP
from gpt2core.schedulers.scheduler import Job, Prepared
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import ConfigError


class OmpFor(OpenMP):
    name, order = "omp-for", "ops"
    options = ("assignment", "op_threads", "runtime")

    def check(self, config: TrainConfig) -> None:
        """Fewer threads than the team's have no part in a worksharing loop that a runtime distributes."""
        super().check(config)
        if config.op_threads and config.assignment == "dynamic":
            accepted = "static with op_threads, since all threads of omp-for's team take part in a dynamic loop"
            raise ConfigError("assignment", config.assignment, accepted)

    def prepare(self, job: Job) -> Prepared:
        from gpt2core.schedulers.openmp.for_loop import OmpForRun

        return OmpForRun(job)


SCHEDULER = OmpFor()
