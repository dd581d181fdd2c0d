from __future__ import annotations

from taskloom.contract.attempts import STEPS, StepsDone
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


def evaluated(steps: Steps, number: int) -> None:
    steps.evaluated({"event": "evaluation", "step": number, "loss": number / 2, "accuracy": number / 10})


def numbers(found: StepsDone | None) -> tuple[int, int] | None:
    """The first and the last of the steps."""
    return None if found is None else (found.first, found.first + len(found.step_s) - 1)


def test_a_step_that_is_evaluated_waits_for_its_evaluation() -> None:
    steps = Steps(evaluate_every=3)
    done(steps, 1, 2, 3)
    first = steps.next()
    assert first is not None
    assert (numbers(first), steps.pending) == ((1, 2), 3)
    assert not {"evaluation_loss", "evaluation_accuracy"} & first.model_dump().keys()  # which earlier servers refuse
    steps.acknowledge(first)
    assert steps.next() is None
    evaluated(steps, 2)  # another one's
    assert steps.next() is None
    evaluated(steps, 3)
    done(steps, 4)
    second = steps.next()
    assert second is not None
    assert (numbers(second), second.evaluation_loss, second.evaluation_accuracy) == ((3, 4), [1.5, None], [0.3, None])
    steps.acknowledge(second)
    done(steps, 5, 6)
    evaluated(steps, 6)
    assert (found := steps.next()) is not None
    assert (found.evaluation_loss, found.evaluation_accuracy) == ([None, 3.0], [None, 0.6])


def test_an_event_has_the_steps_since_the_one_before() -> None:
    steps = Steps()
    done(steps, 1)
    earlier = {"step_s": [0.25, 0.5], "loss": [4.0, 3.0], "accuracy": [0.25, 0.5]}
    steps.add({"event": "step", "step": 4, "step_s": 0.75, "loss": 2.0, "accuracy": 0.625, "earlier": earlier})
    found = steps.next()
    assert found is not None
    assert (found.first, found.step_s, found.loss) == (1, [0.125, 0.25, 0.5, 0.75], [5.0, 4.0, 3.0, 2.0])
    steps.acknowledge(found)
    steps.add({"event": "step", "step": 9, "step_s": 1.0, "earlier": {"step_s": [0.5]}})  # 5 to 7 are missing
    steps.add({"event": "step", "step": 11, "step_s": 1.0, "earlier": {"step_s": ["1"]}})
    found = steps.next()
    assert found is not None
    assert (found.first, found.step_s, found.loss) == (8, [0.5, 1.0], [None, None])
