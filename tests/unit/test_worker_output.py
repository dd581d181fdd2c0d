from __future__ import annotations

from taskloom.contract.attempts import OUTPUT_LINES
from taskloom.worker.output import KEPT_LINES, Output


def test_lines_are_numbered_and_stay_until_they_are_acknowledged() -> None:
    output = Output()
    assert output.next() is None
    for i in range(1, OUTPUT_LINES + 3):
        output.add(f"line {i}")
    first = output.next()
    assert first is not None
    assert output.next() == first  # sent again until there is an answer
    assert (first.first, first.lines[0], len(first.lines)) == (1, "line 1", OUTPUT_LINES)
    output.acknowledge(first)
    rest = output.next()
    assert rest is not None
    assert (rest.first, rest.lines) == (OUTPUT_LINES + 1, [f"line {OUTPUT_LINES + 1}", f"line {OUTPUT_LINES + 2}"])
    output.acknowledge(first)  # a late answer
    assert output.next() == rest
    output.acknowledge(rest)
    assert (output.next(), output.pending) == (None, 0)


def test_the_oldest_go_first_and_numbers_stay_true() -> None:
    output = Output()
    for i in range(1, KEPT_LINES + 6):
        output.add(f"line {i}")
    found = output.next()
    assert found is not None
    assert (found.first, found.lines[0], output.pending) == (6, "line 6", KEPT_LINES)


def test_an_acknowledgement_of_what_was_dropped_since_takes_nothing_else() -> None:
    output = Output()
    output.add("line 1")
    sent = output.next()
    assert sent is not None
    for i in range(2, KEPT_LINES + 10):
        output.add(f"line {i}")
    output.acknowledge(sent)
    found = output.next()
    assert found is not None
    assert (found.first, found.lines[0]) == (10, "line 10")
