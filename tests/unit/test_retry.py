from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskloom.contract.retry import GaveUp, RetryPolicy, Unreachable, call_until_answered, parse_retry_after_s


@given(failures=st.integers(1, 10_000), spread=st.floats(0, 1))
def test_delays_grow_within_bounds(failures: int, spread: float) -> None:
    policy = RetryPolicy(first_s=0.5, factor=2.0, most_s=30.0)
    delay_s = policy.delay_s(failures, spread=spread)
    assert 0.25 <= delay_s <= 30.0
    assert delay_s <= policy.delay_s(failures + 1, spread=spread)


def test_two_workers_do_not_come_back_in_step() -> None:
    assert len({RetryPolicy().delay_s(3) for _ in range(20)}) > 10


def test_the_servers_word_is_a_lower_bound() -> None:
    policy = RetryPolicy()
    assert policy.delay_s(1, retry_after_s=20.0) == 20.0
    assert policy.delay_s(50, retry_after_s=1.0, spread=1.0) == policy.most_s
    assert policy.delay_s(1, retry_after_s=1e9) == 300.0


@pytest.mark.parametrize(
    ("header", "delay_s"),
    [(None, None), ("", None), ("7", 7.0), ("soon", None), ("-3", None), ("Thu, 01 Jan 1970 00:01:00 GMT", 50.0)],
)
def test_retry_after_is_seconds_or_a_date(header: str | None, delay_s: float | None) -> None:
    assert parse_retry_after_s(header, now_s=10.0) == delay_s


def test_a_date_that_has_passed_means_now() -> None:
    assert parse_retry_after_s("Thu, 01 Jan 1970 00:00:01 GMT", now_s=10.0) == 0.0


def test_a_call_is_repeated_until_it_is_answered() -> None:
    outcomes: list[Exception | str] = [Unreachable("down"), Unreachable("busy", retry_after_s=9.0), "answer"]
    pauses: list[float] = []

    def call() -> str:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def pause(delay_s: float) -> bool:
        pauses.append(delay_s)
        return True

    errors: list[str] = []
    assert call_until_answered(call, pause, lambda error, _: errors.append(str(error))) == "answer"
    assert errors == ["down", "busy"]
    assert pauses[1] >= 9.0


def test_other_errors_are_not_retried_and_a_stop_ends_the_waiting() -> None:
    def refuse() -> None:
        raise ValueError

    def down() -> None:
        raise Unreachable("down")

    with pytest.raises(ValueError):
        call_until_answered(refuse, lambda _: True, lambda *_: None)
    with pytest.raises(GaveUp, match="down"):
        call_until_answered(down, lambda _: False, lambda *_: None)
