"""omp-for: each op's tiles are a worksharing loop of one parallel region; a barrier follows."""

from __future__ import annotations

from gpt2core.schedulers.openmp.scheduler import OpenMP
from gpt2core.schedulers.scheduler import Job, Prepared


class OmpFor(OpenMP):
    name, order = "omp-for", "ops"
    options = ("assignment", "runtime")

    def prepare(self, job: Job) -> Prepared:
        from gpt2core.schedulers.openmp.for_loop import OmpForRun

        return OmpForRun(job)


SCHEDULER = OmpFor()
