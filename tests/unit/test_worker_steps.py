from __future__ import annotations

from taskloom.contract.attempts import STEPS
from taskloom.worker.steps import KEPT_STEPS, Steps


def done(steps: Steps, *numbers: int) -> None:
    for number in numbers:
        steps.add({"event": "step", "step": number, "steps": 99, "step_s": number / 8, "loss": 5.0})


def test_steps_are_numbered_and_stay_until_they_are_acknowledged() -> None:
    steps = Steps()
    assert steps.next() is None
    done(steps, *range(1, STEPS + 3))
    first = steps.next()
    assert first is not None
    assert steps.next() == first
    assert (first.first, first.step_s[0], first.loss[0], len(first.step_s)) == (1, 0.125, 5.0, STEPS)
    steps.acknowledge(first)
    rest = steps.next()
    assert rest is not None
    assert (rest.first, rest.step_s) == (STEPS + 1, [(STEPS + 1) / 8, (STEPS + 2) / 8])
    steps.acknowledge(first)  # a late answer
    assert steps.next() == rest
    steps.acknowledge(rest)
    assert (steps.next(), steps.pending) == (None, 0)


def test_the_oldest_go_first_and_numbers_stay_true() -> None:
    steps = Steps()
    done(steps, *range(1, KEPT_STEPS + 6))
    found = steps.next()
    assert found is not None
    assert (found.first, found.step_s[0], steps.pending) == (6, 0.75, KEPT_STEPS)


def test_what_is_no_step_is_left_out_and_a_gap_begins_anew() -> None:
    steps = Steps()
    done(steps, 1, 2)
    for odd in (None, float("nan"), -1.0, "1"):
        steps.add({"step": 3, "step_s": odd})
    steps.add({"step": "3", "step_s": 1.0})
    done(steps, 7)
    steps.add({"step": 8, "step_s": 1.0, "loss": float("inf")})
    found = steps.next()
    assert found is not None
    assert (found.first, found.step_s, found.loss) == (7, [0.875, 1.0], [5.0, None])


def test_a_network_with_classes_has_an_accuracy_of_each_step() -> None:
    steps = Steps()
    done(steps, 1)
    assert (found := steps.next()) is not None
    assert found.accuracy is None
    steps = Steps()
    for number in (1, 2):
        steps.add({"event": "step", "step": number, "step_s": 0.5, "loss": 5.0, "accuracy": number / 4})
    assert (found := steps.next()) is not None
    assert found.accuracy == [0.25, 0.5]
