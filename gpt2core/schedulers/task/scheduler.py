"""Task: the graph is replayed; a task runs when its predecessors have run."""

from __future__ import annotations

from typing import ClassVar

from gpt2core.schedulers.scheduler import Job, Prepared, Scheduler


class Task(Scheduler):
    name, order = "task", "graph"
    options = ("policy",)
    second_moment = True
    finest: ClassVar = {"sync": "none", "policy": "critical-path"}

    def prepare(self, job: Job) -> Prepared:
        from gpt2core.schedulers.task.loop import TaskRun

        return TaskRun(job)


SCHEDULER = Task()
