import pytest

from taskloom.analysis.work_span import bounds, fork_join_span, span, steady_span, work_span

# A diamond: the task of cost 1 precedes those of 2 and 4, and both precede the one of 3.
COST, EDGES = [1.0, 2.0, 4.0, 3.0], [(0, 1), (0, 2), (1, 3), (2, 3)]


def test_span_of_a_diamond():
    assert span(COST, EDGES) == 8.0
    assert span(COST, []) == 4.0
    assert span([], []) == 0.0


def test_edges_that_go_back_are_an_error():
    with pytest.raises(ValueError, match="2 -> 1"):
        span([1.0, 1.0, 1.0], [(2, 1)])


def test_bounds_are_brents():
    found = bounds(10.0, 4.0, 2)
    assert (found.low_s, found.greedy_s, found.speedup_high) == (5.0, 9.0, 2.0)
    assert bounds(10.0, 4.0, 8).low_s == 4.0


def test_barriers_between_ops_make_the_span_longer():
    # Two ops of two tiles whose costs alternate: a chain for each row would take 4, barriers make it 3 + 3.
    cost = [1.0, 3.0, 3.0, 1.0]
    assert span(cost, [(0, 2), (1, 3)]) == 4.0
    assert fork_join_span(cost, [0, 2, 4]) == 6.0
    found = work_span(8.0, 4.0, 6.0, [1, 2, 4])
    assert found.gain_limit == 1.5
    assert [b.low_s for b in found.task] == [8.0, 4.0, 4.0]
    assert [b.low_s for b in found.fork_join] == [8.0, 6.0, 6.0]
    assert (found.parallelism, found.fork_join_parallelism) == pytest.approx((2.0, 4 / 3))


def test_a_step_that_overlaps_with_the_next_has_a_shorter_span():
    # a -> b within a step, a -> a of the next: b is off the path that repeats.
    assert steady_span([2.0, 5.0], [(0, 1)], [(0, 0)]) == pytest.approx(2.0)
    # With a wait at the end of a step nothing overlaps.
    assert steady_span([2.0, 5.0], [(0, 1)], [(1, 0)]) == pytest.approx(7.0)


def test_nothing_to_do_is_an_error():
    with pytest.raises(ValueError):
        work_span(0.0, 1.0, 1.0, [1])
