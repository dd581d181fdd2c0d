"""Traces in the formats of viewers."""

from __future__ import annotations

import gzip
import json
import re
from collections import defaultdict
from datetime import datetime
from typing import Any

import pytest

from gpt2core.spec.errors import InputError
from taskloom import trace_files
from taskloom.analysis import chrome, paraver
from taskloom.analysis.trace import Trace, busy, op_numbers, trace_of
from tests.support.trace_checks import check_chrome, check_paraver
from tests.support.trace_example import FOUND

AT = datetime(2026, 11, 21, 13, 5)


@pytest.fixture
def trace() -> Trace:
    return trace_of(FOUND)


def chrome_events(*traces: Trace) -> list[dict[str, Any]]:
    return check_chrome("".join(chrome.chrome([(f"run {i}", found) for i, found in enumerate(traces)])))


def test_a_chrome_trace_shows_tasks_waits_scheduling_and_steps(trace):
    events = chrome_events(trace)
    spans = [event for event in events if event["ph"] == "X"]
    assert sum(event["dur"] for event in spans if event["cat"] == "loss") == pytest.approx(2.3)
    assert sum(event["dur"] for event in spans if event["cat"] == "backward") == pytest.approx(3)
    assert [(e["name"], e["ts"], e["dur"]) for e in spans if e["cat"] == "step"] == [
        ("step 2", 0, 10), ("step 3", 10, 11)
    ]  # fmt: skip
    assert {e["name"] for e in spans if e["cat"] == "waiting"} == {"wait: starvation", "wait: barrier"}
    assert [(e["ts"], e["dur"]) for e in spans if e["cat"] == "scheduling"] == [(6.15, 1.2), (16.1, 2.0)]
    (first,) = [e for e in spans if e["name"] == "qkv" and e["args"]["step"] == 2]
    assert first["args"] == {"task": "qkv[0] s0", "layer": 0, "step": 2}


def test_an_arrow_is_the_last_dependency_from_another_thread(trace):
    flows = [event for event in chrome_events(trace) if event["ph"] in "sf"]
    assert [(e["ph"], e["tid"], e["ts"]) for e in flows] == [
        ("s", 0, 4.099), ("f", 1, 4.15), ("s", 1, 6.649), ("f", 0, 7.35), ("s", 0, 14.049), ("f", 1, 14.75),
        ("s", 1, 16.749), ("f", 0, 18.1),
    ]  # fmt: skip


def test_two_runs_are_aligned_where_their_steps_begin(trace):
    slower = trace_of({**FOUND, "step_end_ns": [14_000, 21_000]})
    events = chrome_events(trace, slower)
    steps = [(e["pid"], e["ts"], e["dur"]) for e in events if e["ph"] == "X" and e["cat"] == "step"]
    assert steps == [(1, 0, 10), (1, 14, 11), (2, 0, 14), (2, 14, 7)]
    names = [e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "process_name"]
    assert names == ["run 0", "run 1"]


def test_paraver_states_events_and_dependencies(trace):
    records = check_paraver("\n".join(paraver.prv(trace, AT)))
    in_state: defaultdict[Any, int] = defaultdict(int)
    for _, _, _, thread, begin, end, state in records["1"]:
        in_state[thread, state] += end - begin
    assert in_state[1, paraver.RUNNING] == 17_300
    assert in_state[2, paraver.SYNCHRONISATION] == 8000
    assert in_state[2, paraver.NOTHING] == 4000 + 21_000 - 16_750
    assert in_state[1, paraver.SCHEDULING] == 3600
    assert [(r[3], r[4], r[9], r[10]) for r in records["3"]] == [
        (1, 4100, 2, 4150), (2, 6650, 1, 7350), (1, 14_050, 2, 14_750), (2, 16_750, 1, 18_100),
    ]  # fmt: skip
    iterations = [r[4:7] for r in records["2"] if r[5] == paraver.ITERATION and r[3] == 1]
    assert iterations == [
        [0, paraver.ITERATION, 3], [10_000, paraver.ITERATION, 4], [21_000, paraver.ITERATION, 0]
    ]  # fmt: skip


def test_paravers_labels_cover_every_value(trace):
    records = check_paraver("\n".join(paraver.prv(trace, AT)))
    pcf = paraver.pcf(trace)
    types: dict[int, set[int]] = {}
    for block in pcf.split("EVENT_TYPE\n")[1:]:
        first, _, values = block.partition("\nVALUES\n")
        gradient, number, _ = first.strip().split(None, 2)
        assert gradient == "0"
        types[int(number)] = {int(line.split()[0]) for line in values.splitlines() if line.strip()}
    for record in records["2"]:
        for kind, value in zip(record[5::2], record[6::2], strict=True):
            assert kind in types
            assert value in types[kind]
    states = dict(re.findall(r"^(\d+) +([A-Z].*)$", pcf.partition("STATES\n")[2].partition("\n\n")[0], re.M))
    assert {str(record[6]) for record in records["1"]} <= set(states)
    lines = paraver.row(trace).split("\n\n")
    for block in lines:
        head, *names = block.strip().splitlines()
        assert re.fullmatch(r"LEVEL (CPU|THREAD) SIZE 2", head)
        assert len(names) == 2


@pytest.fixture
def disturbed() -> Trace:
    """The first task of thread 0 did not run for 3 of its 4 us, and the first step is flagged."""
    first, second = FOUND["threads"]
    threads = [{**first, "run_delay": {"span": [0], "ns": [3000]}}, {**second, "run_delay": {"span": [], "ns": []}}]
    return trace_of({**FOUND, "threads": threads, "flagged": [["run_delay", "steal"], []]})


def test_a_preempted_task_is_not_drawn_as_useful_work(trace, disturbed):
    events = chrome_events(disturbed)
    (lost,) = [e for e in events if e.get("cat") == "preempted"]
    (task,) = [e for e in events if e["name"] == "qkv" and e["args"].get("step") == 2]
    assert (lost["name"], lost["tid"], lost["dur"]) == ("not running", task["tid"], 3)
    assert lost["ts"] + lost["dur"] == pytest.approx(task["ts"] + task["dur"])
    busy_us = [sum(e["args"]["busy"] for e in chrome_events(t) if e["ph"] == "C") for t in (trace, disturbed)]
    assert busy_us[0] > busy_us[1]
    records = check_paraver("\n".join(paraver.prv(disturbed, AT)))
    in_state = {state: sum(r[5] - r[4] for r in records["1"] if r[6] == state) for state in paraver.STATES}
    assert in_state[paraver.PREEMPTED] == 3000
    assert in_state[paraver.RUNNING] == 17_300 + 2500 + 2000 - 3000


def test_a_flagged_step_is_marked(disturbed):
    steps = [(e["name"], e["ts"], e["dur"]) for e in chrome_events(disturbed) if e.get("cat") in ("step", "flagged")]
    assert steps == [("step 2", 0, 10), ("flagged: run_delay, steal", 0, 10), ("step 3", 10, 11)]
    records = check_paraver("\n".join(paraver.prv(disturbed, AT)))
    marks = [tuple(r[4:]) for r in records["2"] if paraver.FLAGGED in r and r[3] == 1]
    assert [(at, flagged) for at, _, _, _, flagged in marks] == [(0, 1), (10_000, 0), (21_000, 0)]


def test_an_op_keeps_its_number_in_other_runs():
    kinds = [("qkv", "forward"), ("fused_new_op", "forward"), ("gelu", "backward"), ("gelu", "forward")]
    numbers = dict(zip(kinds, op_numbers(kinds), strict=True))
    assert len(set(numbers.values())) == 4
    fewer = [("gelu", "forward"), ("fused_new_op", "forward"), ("qkv", "forward")]
    assert op_numbers(fewer) == [numbers[kind] for kind in fewer]


def test_busy_cores_between_edges():
    assert busy([0, 5], [10, 15], [0, 5, 10, 20]) == [1.0, 2.0, 0.5]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": "x"}, "schema is 'x'"),
        ({"cores": [1]}, "a core for each thread"),
        ({"calls": {"op": [0, 1, 1, 2, 9], "task": [0, 1, 2, 3, 3]}}, "unknown kind"),
        ({"calls": {"op": [0], "task": [0, 1, 2, 3, 3]}}, "differ in length"),
        ({"threads": None}, "missing or malformed"),
        ({"threads": [{"what": [9], "step": [0], "gap_ns": [0], "duration_ns": [1]}] * 2}, "names an unknown call"),
        ({"threads": [{"what": [1], "step": [0], "gap_ns": [0], "duration_ns": [-1]}] * 2}, "overlap"),
        ({"threads": [{"what": [1], "step": [0], "gap_ns": [0], "duration_ns": [9],
                       "run_delay": {"span": [0], "ns": [10]}}] * 2}, "run delay of span 0 is not within it"),
        ({"threads": [{"what": [1], "step": [0], "gap_ns": [0], "duration_ns": [9],
                       "run_delay": {"span": [1], "ns": [1]}}] * 2}, "run delay of span 1 is not within it"),
        ({"flagged": [[]]}, "an entry for each step"),
    ],
)
def test_what_is_no_trace_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        trace_of({**FOUND, **change})


@pytest.mark.parametrize(
    ("content", "why"),
    [(json.dumps(FOUND).encode() + b" " * (1 << 20), "more than 1048576 bytes"), (b"[" * 10_000, "is not a trace")],
)
def test_a_file_that_unpacks_to_more_than_a_trace_is_refused(tmp_path, content, why):
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps(FOUND).encode()))
    assert trace_files.read(path, 1 << 20).steps()
    path.write_bytes(gzip.compress(content))
    with pytest.raises(InputError, match=why):
        trace_files.read(path, 1 << 20)


def test_a_file_whose_packing_is_damaged_is_refused(tmp_path):
    path = tmp_path / "trace.json.gz"
    packed = bytearray(gzip.compress(json.dumps(FOUND).encode()))
    packed[20:40] = b"\0" * 20
    path.write_bytes(packed)
    with pytest.raises(InputError):
        trace_files.read(path)
