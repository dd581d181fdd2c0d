"""Serial: the tasks in program order on one thread. The reference for every other scheduler."""

from __future__ import annotations

from gpt2core.schedulers.scheduler import Job, Prepared, Scheduler


class Serial(Scheduler):
    name, order = "serial", "program"
    most_threads = 1

    def prepare(self, job: Job) -> Prepared:
        from gpt2core.schedulers.serial.loop import SerialRun

        return SerialRun(job)


SCHEDULER = Serial()
