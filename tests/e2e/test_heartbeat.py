"""The agent's heartbeat is on time while its trainer uses every core."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from datetime import datetime, timedelta

import psutil
import pytest

from taskloom import Client
from tests.support.patience import until
from tests.support.processes import House
from tests.support.runs import ended, submit, training

pytestmark = [pytest.mark.alone, pytest.mark.slow]

BEATS = 8
LATEST = timedelta(seconds=2)
HEARTBEAT = timedelta(seconds=0.2)  # the interval of the tests' servers


def test_beats_come_in_time_while_the_trainer_uses_every_core(home: House, client: Client) -> None:
    worker = home.start_worker(None, "--drain", "release")  # a drained worker ends its real trainer
    cores = len(os.sched_getaffinity(0))
    run_id = submit(client, batch=4, seq=64, steps=1_000_000, threads=cores)
    training(client, run_id)
    trainer = psutil.Process(worker.popen.pid).children()[0]
    before = busy_s(trainer)
    beats: set[datetime] = set()  # ends of the lease by the server's clock, moved by each heartbeat

    def enough() -> bool:
        beats.add(client.run(run_id).history[0].expires_at)
        return len(beats) > BEATS

    until(enough, f"{BEATS} beats")
    lasted_s = (max(beats) - min(beats)).total_seconds()
    spent_s = busy_s(trainer) - before
    assert sum(each > 0.02 * lasted_s for each in spent_s.values()) >= cores, spent_s  # the threads were busy
    times = sorted(beats)
    assert max(b - a for a, b in itertools.pairwise(times)) < HEARTBEAT + LATEST
    client.cancel_run(run_id)
    assert ended(client, run_id).attempts == 1


def busy_s(process: psutil.Process) -> Counter[int]:
    """User CPU time of each thread, in seconds."""
    return Counter({thread.id: thread.user_time for thread in process.threads()})
