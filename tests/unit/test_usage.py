"""Readings of compiled code about its own thread, and hardware counters, compared with the work between two
readings."""

from __future__ import annotations

import errno
import mmap
import os
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from gpt2core.measure import counters, evidence, usage
from gpt2core.measure.counters import EVENTS, SOFTWARE, Counters


@pytest.fixture
def desk():
    cells = np.full(usage.DESK_CELLS, usage.UNKNOWN, np.int64)
    descriptor = evidence.open_schedstat(cells)
    yield cells
    if descriptor >= 0:
        os.close(descriptor)


def read(desk: np.ndarray) -> np.ndarray:
    row = np.zeros(8, np.int64)
    usage.read_usage(row.ctypes.data, desk.ctypes.data)
    return row


def test_faults_and_sleeps_of_this_thread_are_counted(desk):
    before = read(desk)
    pages = mmap.mmap(-1, 64 * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    pages.madvise(mmap.MADV_NOHUGEPAGE)
    for page in range(64):
        pages[page * mmap.PAGESIZE] = 1
    time.sleep(0.001)
    after = read(desk)
    assert after[usage.MINOR] - before[usage.MINOR] >= 64
    assert after[usage.VOLUNTARY] - before[usage.VOLUNTARY] >= 1
    assert after[usage.READ] > before[usage.READ]
    assert after[usage.CORE] in os.sched_getaffinity(0)


def test_another_threads_faults_are_not_this_ones(desk):
    before = read(desk)

    def fault() -> None:
        pages = mmap.mmap(-1, 2000 * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        pages.madvise(mmap.MADV_NOHUGEPAGE)
        for page in range(2000):
            pages[page * mmap.PAGESIZE] = 1

    other = threading.Thread(target=fault)
    other.start()
    other.join()
    assert read(desk)[usage.MINOR] - before[usage.MINOR] < 1000


def test_the_run_delay_is_the_kernels(desk):
    def run_delay_ns() -> int:
        return int(Path("/proc/thread-self/schedstat").read_text(encoding="ascii").split()[1])

    low = run_delay_ns()
    assert low <= read(desk)[usage.RUN_DELAY_NS] <= run_delay_ns()


def test_without_a_schedstat_the_delay_is_unknown(desk):
    desk[usage.SCHEDSTAT_FD] = usage.UNKNOWN
    assert read(desk)[usage.RUN_DELAY_NS] == usage.UNKNOWN


@pytest.mark.parametrize(
    ("text", "number"), [(b"12 345 6\n", 345), (b"1 0 7\n", 0), (b"77", -1), (b"", -1), (b"a b", -1)]
)
def test_the_second_number(text, number):
    buffer = np.frombuffer(text.ljust(64, b"\0"), np.uint8).copy()
    assert usage.second_number(buffer.ctypes.data, len(text)) == number


@pytest.mark.alone
def test_a_software_counter_counts_this_threads_time():
    """Reading works where Linux allows every process to count. The count is the thread's own CPU time, as
    time.thread_time_ns reports it, including time that the host took.
    """
    mine = Counters({"task_clock_ns": EVENTS["task_clock_ns"]})
    before, wall = time.thread_time_ns(), time.perf_counter_ns()
    mine.start()
    if mine.unavailable:
        pytest.fail(f"no software counter either: {mine.unavailable}")
    while time.thread_time_ns() - before < 20_000_000:
        pass
    counted = mine.stop()["task_clock_ns"]
    assert counted is not None
    assert 0.5 * (time.thread_time_ns() - before) < counted <= 1.01 * (time.perf_counter_ns() - wall)


def test_a_counter_is_a_number_or_has_a_reason():
    mine = Counters()
    mine.start()
    counted = mine.stop()
    assert set(counted) == set(EVENTS)
    for name, value in counted.items():
        assert (value is None) == (name in mine.unavailable)


def test_a_refusal_is_named_and_closes_nothing_else():
    mine = Counters({"nonsense": (SOFTWARE, 999), "task_clock_ns": EVENTS["task_clock_ns"]})
    mine.start()
    assert list(mine.unavailable) == ["nonsense"]
    assert "perf_event_open" in mine.unavailable["nonsense"]
    counted = mine.stop()
    assert counted["nonsense"] is None
    assert counted["task_clock_ns"]


@pytest.mark.parametrize(
    ("code", "word"), [(errno.EACCES, "perf_event_paranoid"), (errno.ENOENT, "no such counter"), (errno.EIO, "EIO")]
)
def test_refusals_in_words(code, word):
    assert word in counters.why_not(OSError(code, os.strerror(code)))
