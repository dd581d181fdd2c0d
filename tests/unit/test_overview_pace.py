import os
import subprocess
import sys
import time

import pytest

from taskloom.server.read.overview import overviews
from taskloom.server.read.overview.overviews import COSTS, Pace, core_clock_s


def test_a_look_takes_a_tenth_of_the_time_after_changes_and_a_five_hundredth_without():
    pace = Pace(every_s=0.5)
    pace.looked(100.0, cost_s=0.2)
    assert (pace.next_at, pace.at_latest) == (102.0, 200.0)
    pace.add_read(102.0)  # nothing had changed
    assert (pace.next_at, pace.at_latest) == (102.5, 200.0)
    cheap = Pace(every_s=0.5)
    cheap.looked(100.0, cost_s=0.01)
    assert (cheap.next_at, cheap.at_latest) == (100.5, 115.0)


def test_a_look_that_had_to_wait_does_not_delay_the_next_one():
    pace = Pace(every_s=0.5)
    pace.looked(100.0, cost_s=0.02)
    pace.looked(101.0, cost_s=3.0)
    assert (pace.next_at, pace.at_latest) == (101.5, 116.0)
    for _ in range(COSTS - 1):
        pace.looked(110.0, cost_s=0.1)  # the work itself has grown
    assert pace.next_at == 111.0


@pytest.mark.parametrize(("schedstat", "waited_s"), [("7000000000 2500000000000 12\n", 2500.0), (None, 0.0)])
def test_the_clock_of_a_look_leaves_out_waiting_for_a_core(tmp_path, monkeypatch, schedstat, waited_s):
    path = tmp_path / "schedstat"
    if schedstat is not None:  # None: this kernel does not count it
        path.write_text(schedstat)
    monkeypatch.setattr(overviews, "WAITED", path)
    assert time.monotonic() - core_clock_s() == pytest.approx(waited_s, abs=60)


@pytest.mark.skipif(not overviews.WAITED.exists(), reason="only Linux counts how long a thread waits for a core")
def test_a_thread_that_shares_its_core_waits_for_it():
    spin = "import os, sys, time; os.sched_setaffinity(0, {int(sys.argv[1])}); print(flush=True)\nwhile True: pass"
    before = os.sched_getaffinity(0)
    core = min(before)
    with subprocess.Popen([sys.executable, "-c", spin, str(core)], stdout=subprocess.PIPE) as other:
        try:
            assert other.stdout is not None
            other.stdout.readline()
            os.sched_setaffinity(0, {core})
            clock_s, began = core_clock_s(), time.monotonic()
            while time.monotonic() < began + 0.5:
                pass
            clock_s, took_s = core_clock_s() - clock_s, time.monotonic() - began
        finally:
            os.sched_setaffinity(0, before)
            other.kill()
    assert clock_s < 0.8 * took_s
