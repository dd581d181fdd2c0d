"""omp-task: each task is an OpenMP task with depend clauses, created again in every step."""

from __future__ import annotations

from typing import ClassVar

from gpt2core.schedulers.openmp.scheduler import OpenMP
from gpt2core.schedulers.scheduler import Job, Prepared


class OmpTask(OpenMP):
    holds_threads = True
    name, order = "omp-task", "graph"
    options = ("policy", "runtime")
    tells_scheduling = False  # no runtime distinguishes looking for a task from having none, not even through OMPT
    finest: ClassVar = {"sync": "none", "policy": "breadth-first"}

    def prepare(self, job: Job) -> Prepared:
        from gpt2core.schedulers.openmp.task_loop import OmpTaskRun

        return OmpTaskRun(job)


SCHEDULER = OmpTask()
