"""Traces of several ranks: their messages, and viewers' files on one clock."""

import copy
import re
from collections import defaultdict
from datetime import datetime
from typing import Any

import pytest

from taskloom.analysis import chrome, paraver
from taskloom.analysis.messages import messages
from taskloom.analysis.trace import trace_of
from tests.support.trace_checks import check_chrome, check_paraver
from tests.support.trace_example import FOUND, HELD, OF_RANKS, of_rank

AT = datetime(2026, 11, 29, 13, 5)


def chrome_events(**traces):
    return check_chrome("".join(chrome.chrome([(name, trace_of(found)) for name, found in traces.items()])))


def test_a_message_goes_from_the_task_that_sent_it_until_all_has_arrived():
    found = list(messages(trace_of(OF_RANKS)))
    assert [(m.step, m.sender, m.receiver, m.bytes, m.began_ns, m.from_ns, m.to_ns) for m in found] == [
        (1, 0, 1, 4096, 3150, 3250, 5550), (2, 0, 1, 4096, 11_150, 11_250, 13_550),
        (1, 1, 0, 8192, 5150, 5250, 5900), (2, 1, 0, 8192, 13_150, 13_250, 13_900),
    ]  # fmt: skip
    assert {m.label for m in found} == {"gradients_arrived fc b0"}
    assert list(messages(trace_of(FOUND))) == []


def test_where_the_task_holds_its_thread_it_has_arrived_when_the_task_ends():
    assert [m.to_ns for m in messages(trace_of(HELD))] == [7500, 15_500, 7500, 15_500]


def test_nothing_arrives_before_it_was_sent():
    """The clocks of the ranks agree to within an error."""
    early = copy.deepcopy(OF_RANKS)
    early["completed"]["at_ns"] = [[5500, 13_900]]  # 50 ns before rank 1 sent it, by rank 0's clock
    assert [m.to_ns for m in messages(trace_of(early)) if m.receiver == 0] == [5550, 13_900]


def test_a_trace_that_is_cut_off_has_the_messages_with_both_ends():
    short = copy.deepcopy(OF_RANKS)
    for column in ("what", "step", "gap_ns", "duration_ns"):
        short["ranks"][0]["threads"][0][column] = short["ranks"][0]["threads"][0][column][:5]
    assert [(m.step, m.sender) for m in messages(trace_of(short))] == [(1, 0), (1, 1)]


def test_a_chrome_trace_has_a_process_for_each_rank_on_one_clock():
    events = chrome_events(run=OF_RANKS)
    names = [e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "process_name"]
    assert names == ["run, rank 0", "run, rank 1"]
    steps = [(e["pid"], e["ts"], e["dur"]) for e in events if e["ph"] == "X" and e["cat"] == "step"]
    assert steps == [(1, 0, 8), (1, 8, 8), (2, 0.3, 8), (2, 8.3, 8)]
    flows = defaultdict(list)
    for event in events:
        if event.get("cat") == "message" and event["ph"] in "sf":
            flows[event["id"]].append((event["pid"], event["tid"], event["ts"]))
    assert sorted(flows.values()) == [
        [(1, 0, 3.249), (2, 2, 5.85)], [(1, 0, 11.249), (2, 2, 13.85)],
        [(2, 0, 5.549), (1, 2, 5.9)], [(2, 0, 13.549), (1, 2, 13.9)],
    ]  # fmt: skip
    arrived = [e for e in events if e["ph"] == "X" and e["cat"] == "message"]
    assert [(e["pid"], e["ts"], e["args"]) for e in arrived] == [
        (1, 5.9, {"bytes": 8192, "step": 1}), (1, 13.9, {"bytes": 8192, "step": 2}),
        (2, 5.85, {"bytes": 4096, "step": 1}), (2, 13.85, {"bytes": 4096, "step": 2}),
    ]  # fmt: skip
    rows = {(e["pid"], e["args"]["name"]) for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    assert {(1, "arrived"), (2, "arrived")} <= rows


def test_runs_of_ranks_are_aligned_by_the_steps_of_rank_0():
    late = copy.deepcopy(OF_RANKS)
    late["begin_ns"], late["ranks"][0]["begin_ns"] = 200, 0
    late["step_end_ns"] = [9000, 16_000]
    events = chrome_events(one=OF_RANKS, other=late)
    steps = defaultdict(list)
    for event in events:
        if event["ph"] == "X" and event["cat"] == "step":
            steps[event["pid"]].append(event["ts"])
    assert dict(steps) == {1: [0.2, 9.2], 2: [0.5, 9.5], 3: [0.2, 9.2], 4: [0.0, 8.0]}


def test_paraver_has_a_task_for_each_rank_and_their_messages():
    trace = trace_of(OF_RANKS)
    records = check_paraver("\n".join(paraver.prv(trace, AT)))
    between = [(r[2], r[4], r[8], r[10], r[12]) for r in records["3"] if r[2] != r[8]]
    assert between == [(1, 3250, 2, 5850, 4096), (2, 5550, 1, 5900, 8192), (1, 11_250, 2, 13_850, 4096),
                       (2, 13_550, 1, 13_900, 8192)]  # fmt: skip
    running: defaultdict[Any, int] = defaultdict(int)
    for _, _, task, _, begin, end, state in records["1"]:
        running[task] += (end - begin) * (state == paraver.RUNNING)
    assert running == {1: 2 * 3600, 2: 2 * 5600}
    iterations = [(r[2], r[4]) for r in records["2"] if r[5] == paraver.ITERATION]
    assert sorted(iterations) == [(1, 0), (1, 8000), (1, 16_000), (2, 300), (2, 8300), (2, 16_300)]
    assert "rank 1, thread 0 on core 1" in paraver.row(trace)
    named = re.findall(r"^\d+ +gradients_(?:send|arrived) update$", paraver.pcf(trace), re.M)
    assert len(named) == 2


def test_paraver_names_the_node_of_a_core_if_there_are_several():
    """Both ranks run on core 0 of their node."""
    apart = copy.deepcopy(OF_RANKS)
    apart |= {"cores": [0], "node": "left"}
    apart["ranks"][0] |= {"cores": [0], "node": "right"}
    trace = trace_of(apart)
    lines = list(paraver.prv(trace, AT))
    assert lines[0].endswith(":2(1,1):1:2(1:1,1:2)")
    records = check_paraver("\n".join(lines))
    assert {(r[0], r[2]) for r in records["1"]} == {(1, 1), (2, 2)}
    assert paraver.row(trace).split("\n\n") == [
        "LEVEL CPU SIZE 2\ncore 0 of left\ncore 0 of right", "LEVEL NODE SIZE 2\nleft\nright",
        "LEVEL THREAD SIZE 2\nrank 0, thread 0 on core 0 of left\nrank 1, thread 0 on core 0 of right\n",
    ]  # fmt: skip
    together = trace_of({**apart, "node": "right"})
    assert next(iter(paraver.prv(together, AT))).endswith(":1(1):1:2(1:1,1:1)")
    assert " of " not in paraver.row(together)

def test_the_title_says_how_many_ranks():
    assert trace_of(OF_RANKS).title.endswith("2 ranks")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ranks": [7]}, "`ranks` is not a list of objects"),
        ({"ranks": 7}, "`ranks` is not a list of objects"),
        ({"ranks": [{}]}, "lacks or garbles"),
        ({"ranks": [{**of_rank(1, 5000, 300), "first_step": 2}]}, "not the same steps"),
        ({"sends": {"task": [9], "to": [1], "bytes": [1]}}, "unknown task or rank"),
        ({"sends": {"task": [1], "to": [2], "bytes": [1]}}, "unknown task or rank"),
        ({"sends": {"task": [1], "to": []}}, "missing or malformed"),
        ({"completed": {"task": [2], "at_ns": [[1]]}}, "an entry for each step"),
    ],
)
def test_what_is_no_trace_of_ranks_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        trace_of({**OF_RANKS, **change})
