"""Efficiency factors, computed by hand and from the POP model's identities."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskloom.analysis.efficiency import Counted, critical_s, efficiency, scalability, waiting_split
from tests.support.present import present

times = st.floats(1e-3, 1e3)
counts = st.builds(Counted, st.floats(1e6, 1e12), st.floats(1e6, 1e12))


def test_factors_of_an_example_worked_by_hand():
    # Two threads, 10 s: one is useful for 8 s, the other for 4 s; the critical path has 9 s of useful time.
    found = efficiency([8.0, 4.0], 10.0, 9.0)
    assert found.parallel == pytest.approx(0.6)
    assert found.load_balance == pytest.approx(0.75)
    assert found.communication == pytest.approx(0.8)
    assert found.serialisation == pytest.approx(8 / 9)
    assert found.transfer == pytest.approx(0.9)


def test_without_a_critical_path_its_factors_are_unknown():
    found = efficiency([1.0, 1.0], 2.0)
    assert (found.serialisation, found.transfer, found.communication) == (None, None, 0.5)


@given(st.lists(times, min_size=1, max_size=64), st.floats(1, 100), st.floats(0.01, 1))
def test_factors_multiply_to_the_parallel_efficiency(useful_s, slack, share):
    elapsed_s = max(useful_s) * slack
    found = efficiency(useful_s, elapsed_s, elapsed_s * share)
    assert found.load_balance * found.communication == pytest.approx(found.parallel, rel=1e-9)
    serialisation, transfer = present(found.serialisation), present(found.transfer)
    assert found.load_balance * serialisation * transfer == pytest.approx(found.parallel, rel=1e-9)


@given(st.lists(st.tuples(times, times, times, times), min_size=1, max_size=32))
def test_the_split_of_waiting_multiplies_to_the_parallel_efficiency(threads):
    elapsed_s = max(sum(parts) for parts in threads)
    useful_s, serial_s, balance_s, _ = zip(*threads, strict=True)
    split = waiting_split(useful_s, serial_s, balance_s, elapsed_s)
    parallel = efficiency(useful_s, elapsed_s).parallel
    assert split.serial * split.load_balance * split.scheduling == pytest.approx(parallel, rel=1e-9)
    assert split.useful_s + split.serial_s + split.load_balance_s + split.scheduling_s == pytest.approx(
        len(threads) * elapsed_s, rel=1e-9
    )


def test_the_split_of_an_example_worked_by_hand():
    # 2 x 10 s: 12 useful, 3 nothing ready, 4 at barriers, so 1 of scheduling.
    split = waiting_split([7.0, 5.0], [1.0, 2.0], [1.0, 3.0], 10.0)
    assert (split.serial, split.load_balance, split.scheduling) == pytest.approx((12 / 15, 15 / 19, 19 / 20))
    assert split.scheduling_s == pytest.approx(1.0)


def test_parts_larger_than_the_whole_are_an_error():
    with pytest.raises(ValueError, match="do not fit"):
        waiting_split([6.0], [3.0], [3.0], 10.0)


def test_the_critical_path_holds_the_longest_thread_and_the_span():
    assert critical_s([3.0, 5.0], 4.0) == 5.0
    assert critical_s([3.0, 5.0], 6.0) == 6.0


@given(times, times, counts, counts)
def test_counters_factor_the_computation_scalability(reference_s, here_s, reference, here):
    found = scalability(reference_s, here_s, reference, here)
    factors = map(present, (found.instructions, found.ipc, found.frequency))
    assert math.prod(factors) == pytest.approx(found.computation, rel=1e-9)


def test_scalability_of_an_example_worked_by_hand():
    # Equal instructions and clock; a quarter more cycles, because memory answers later.
    found = scalability(4.0, 5.0, Counted(8e9, 8e9), Counted(8e9, 1e10))
    assert (found.computation, found.instructions, found.ipc, found.frequency) == pytest.approx((0.8, 1, 0.8, 1))
    assert scalability(4.0, 5.0).ipc is None


@pytest.mark.parametrize("arguments", [([], 1.0), ([0.0], 1.0), ([1.0], 0.0), ([1.0], 1.0, 0.0)])
def test_no_time_is_an_error(arguments):
    with pytest.raises(ValueError):
        efficiency(*arguments)
