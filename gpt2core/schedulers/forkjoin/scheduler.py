"""Fork-join: each op's tiles are shared out to the team, and a barrier follows. Every op is parallel."""

from __future__ import annotations

from gpt2core.schedulers.scheduler import Job, Prepared, Scheduler


class ForkJoin(Scheduler):
    name, order = "fork-join", "ops"
    options = ("assignment", "op_threads")

    def prepare(self, job: Job) -> Prepared:
        from gpt2core.schedulers.forkjoin.loop import ForkJoinRun

        return ForkJoinRun(job)


SCHEDULER = ForkJoin()
