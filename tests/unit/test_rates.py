from __future__ import annotations

from taskloom.server.access.rates import Rates


class Clock:
    """Seconds, moved by hand."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_a_burst_is_taken_and_then_so_many_a_second() -> None:
    clock = Clock()
    rates = Rates(rate_per_s=10, burst_s=2, clock=clock)
    assert [rates.take(1) for _ in range(20)] == [0.0] * 20
    assert rates.take(1) == 0.1
    clock.now_s += 0.25
    assert [rates.take(1) for _ in range(2)] == [0.0, 0.0]
    assert round(rates.take(1), 9) == 0.05


def test_who_waits_as_told_is_served_and_rest_fills_no_more_than_the_bucket() -> None:
    clock = Clock()
    rates = Rates(rate_per_s=0.5, burst_s=2, clock=clock)
    assert rates.take(1) == 0.0
    clock.now_s += rates.take(1)
    assert rates.take(1) == 0.0
    clock.now_s += 1e6
    assert (rates.take(1), rates.take(1)) == (0.0, 2.0)


def test_keys_do_not_use_up_each_others_tokens() -> None:
    rates = Rates(rate_per_s=1, burst_s=1, clock=Clock())
    assert (rates.take(1), rates.take(2)) == (0.0, 0.0)
    assert rates.take(1) > 0
