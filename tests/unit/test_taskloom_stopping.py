from __future__ import annotations

import os
import signal

import pytest

from taskloom.stopping import HEARD, Stopped, Stopping


def test_a_signal_is_an_exception_once() -> None:
    stopping = Stopping()
    with stopping.listening():
        with pytest.raises(Stopped):
            os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)


def start_something(stopping: Stopping, done: list[str]) -> None:
    with stopping.held_back():
        os.kill(os.getpid(), signal.SIGINT)
        done.append("started and known")


def test_a_signal_that_is_held_back_comes_at_the_end_of_the_block() -> None:
    stopping = Stopping()
    done: list[str] = []
    with stopping.listening():
        with pytest.raises(Stopped):
            start_something(stopping, done)
        with stopping.held_back():
            pass
    assert done == ["started and known"]


def test_handlers_are_given_back() -> None:
    before = [signal.getsignal(number) for number in HEARD]
    with Stopping().listening():
        assert [signal.getsignal(number) for number in HEARD] != before
    assert [signal.getsignal(number) for number in HEARD] == before
