"""Of the tests' own processes: one that measures times runs alone, and others do not keep it waiting."""

import fcntl
import signal
import threading
from pathlib import Path

import pytest

from tests.support.neighbours import Neighbours, time_limit_paused
from tests.support.patience import until


@pytest.fixture
def neighbours(tmp_path):
    """Processes of tests; a lock belongs to the file that was opened, so all of them may be in this one."""
    found = [Neighbours(tmp_path) for _ in range(3)]
    yield found
    for each in found:
        each.close()


def is_locked(file):
    with Path(file.name).open("w") as same:
        try:
            fcntl.flock(same, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_others_run_side_by_side(neighbours):
    for each in neighbours:
        each.enter(alone=False)
    for each in neighbours:
        each.leave()
    assert not is_locked(neighbours[0].room)


def test_one_that_measures_waits_for_those_inside_and_nobody_comes_in_before_it(neighbours):
    first, measures, late = neighbours
    inside = []
    first.enter(alone=False)

    def run(one, alone):
        one.enter(alone)
        inside.append((alone, is_locked(one.room)))
        one.leave()

    threads = [threading.Thread(target=run, args=(measures, True))]
    threads[0].start()
    until(lambda: is_locked(measures.door), "the one that measures to wait")
    threads.append(threading.Thread(target=run, args=(late, False)))
    threads[1].start()
    assert inside == []
    first.leave()
    for thread in threads:
        thread.join()
    assert inside == [(True, True), (False, True)]


def test_one_that_stays_does_not_wait_for_itself(neighbours):
    measures, waits, _ = neighbours
    measures.enter(alone=True)
    thread = threading.Thread(target=waits.enter, args=(False,))
    thread.start()
    until(lambda: is_locked(waits.door), "the other one to wait")
    measures.enter(alone=True)
    assert not waits.inside
    measures.leave()
    thread.join()
    assert waits.inside


def test_waiting_takes_nothing_of_the_time_limit():
    with time_limit_paused():  # that of this test
        signal.setitimer(signal.ITIMER_REAL, 1000)
        with time_limit_paused():
            assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
        left_s, _ = signal.getitimer(signal.ITIMER_REAL)
    assert 0 < left_s <= 1000
