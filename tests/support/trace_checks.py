"""Checks of trace files, based on the formats' descriptions and not on the code that writes them."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from itertools import accumulate, pairwise
from typing import Any


def check_chrome(text: str) -> list[dict[str, Any]]:
    """Trace Event Format: every event has the fields of its phase, and the spans of each (pid, tid) nest."""
    events: list[dict[str, Any]] = json.loads(text)["traceEvents"]
    spans, flows = defaultdict(list), defaultdict(list)
    for event in events:
        assert isinstance(event["name"], str)
        assert isinstance(event["pid"], int)
        match event["ph"]:
            case "X":
                assert event["ts"] >= 0
                assert event["dur"] >= 0
                assert event["cat"]
                spans[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
            case "M":
                key = {"process_name": "name", "thread_name": "name", "thread_sort_index": "sort_index"}[event["name"]]
                assert list(event["args"]) == [key]
            case "C":
                assert all(isinstance(value, int | float) for value in event["args"].values())
                assert event["ts"] >= 0
            case "s" | "f" as phase:
                assert phase == "s" or event["bp"] == "e"
                flows[event["id"]].append(event)
            case other:
                raise AssertionError(f"phase {other}")
    for mine in spans.values():
        open_until: list[float] = []
        for begin, end in sorted(mine, key=lambda span: (span[0], -span[1])):
            while open_until and open_until[-1] <= begin + 1e-6:
                open_until.pop()
            assert not open_until or end <= open_until[-1] + 1e-6, "spans overlap without nesting"
            open_until.append(end)
    for start, finish in flows.values():
        assert (start["ph"], finish["ph"]) == ("s", "f")
        assert start["ts"] <= finish["ts"]
        for end in (start, finish):
            around = spans[end["pid"], end["tid"]]
            assert any(begin - 1e-6 <= end["ts"] <= until + 1e-6 for begin, until in around), "it binds to nothing"
    named = {(e["pid"], e["tid"]) for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    assert set(spans) <= named
    return events


def check_paraver(text: str) -> dict[str, list[list[int]]]:
    """The .prv grammar: header, then records of integers, in order of time, within the header's sizes."""
    head, *lines = text.splitlines()
    sizes = r":(\d+)_ns:(\d+)\(([\d,]+)\):1:(\d+)\(([\d:,]+)\)"
    found = re.fullmatch(r"#Paraver \(\d\d/\d\d/\d{4} at \d\d:\d\d\)" + sizes, head)
    assert found, head
    duration, nodes, tasks = int(found[1]), int(found[2]), int(found[4])
    of_nodes = [int(each) for each in found[3].split(",")]
    assert len(of_nodes) == nodes
    first = list(accumulate(of_nodes, initial=1))  # core of each node, and the number of all and 1
    threads, node_of = zip(*(map(int, each.split(":")) for each in found[5].split(",")), strict=True)  # of each task
    assert all(1 <= node <= nodes for node in node_of)
    assert len(threads) == tasks
    records: dict[str, list[list[int]]] = {"1": [], "2": [], "3": []}
    last = 0
    for line in lines:
        assert re.fullmatch(r"[123](:\d+)+", line), line
        kind, *fields = line.split(":")
        numbers = [int(field) for field in fields]
        objects = [numbers[:4], numbers[6:10]] if kind == "3" else [numbers[:4]]
        for cpu, application, task, thread in objects:
            assert application == 1
            assert 1 <= task <= tasks
            assert first[node_of[task - 1] - 1] <= cpu < first[node_of[task - 1]]
            assert 1 <= thread <= threads[task - 1]
        times = {"1": numbers[4:6], "2": numbers[4:5], "3": [*numbers[4:6], *numbers[10:12]]}[kind]
        assert times == sorted(times)
        assert last <= times[0] <= times[-1] <= duration
        last = times[0]
        assert len(numbers) == 7 if kind == "1" else kind == "3" or len(numbers) >= 7
        if kind == "2":
            assert len(numbers) % 2 == 1
        if kind == "3":
            assert len(numbers) == 14
        records[kind].append(numbers)
    places = [[task, thread] for task, count in enumerate(threads, 1) for thread in range(1, count + 1)]
    for place in places:  # a thread is in one state at any time
        mine = [(numbers[4], numbers[5]) for numbers in records["1"] if numbers[2:4] == place]
        assert mine[0][0] == 0
        assert mine[-1][1] == duration
        assert all(end == begin for (_, end), (begin, _) in pairwise(mine))
    return records
