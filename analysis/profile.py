"""A profile: cost and dependencies of each task of a step (taskloom-profile-1)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

from taskloom.analysis.work_span import Edge, fork_join_span, steady_span

SCHEMA = "taskloom-profile-1"
WAIT = -1  # a node that is no task


@dataclass(frozen=True)
class Profile:
    """Tasks in program order with mean seconds, flop and compulsory bytes; the graph over tasks and waits.

    op_first: index of the first task of each op of the program, then the number of tasks. kinds: (name, phase); kind:
    each task's. filler: whether the trainer's breadth-first policy reserves a task for idle threads. whole: the
    share of its cost that a rank has however many ranks there are. nodes: a task's number, or WAIT; edges lead forward
    within a step, crossing ones to the next step.
    """

    config: Mapping[str, Any]
    environment: Mapping[str, Any]
    kinds: Sequence[tuple[str, str]]
    kind: Sequence[int]
    seconds: Sequence[float]
    flop: Sequence[int]
    bytes: Sequence[int]
    op_first: Sequence[int]
    nodes: Sequence[int]
    edges: Sequence[Edge]
    crossing: Sequence[Edge]
    filler: Sequence[bool]
    whole: Sequence[float]

    @property
    def work_s(self) -> float:
        return float(sum(self.seconds))

    @cached_property
    def node_s(self) -> list[float]:
        return [0.0 if task == WAIT else self.seconds[task] for task in self.nodes]

    @cached_property
    def span_s(self) -> float:
        """The graph's span of a step; if steps overlap, the growth with each further step."""
        return steady_span(self.node_s, self.edges, self.crossing)

    @cached_property
    def fork_join_span_s(self) -> float:
        return fork_join_span(self.seconds, self.op_first)

    @cached_property
    def successors(self) -> list[list[tuple[int, bool]]]:
        """For each node its successors, and whether they are of the next step."""
        found: list[list[tuple[int, bool]]] = [[] for _ in self.nodes]
        for crosses, edges in ((False, self.edges), (True, self.crossing)):
            for a, b in edges:
                found[a].append((b, crosses))
        return found


def profile_of(found: Mapping[str, Any]) -> Profile:
    """Read a profile from an artifact's JSON. Raises ValueError with the reason."""
    if found.get("schema") != SCHEMA:
        raise ValueError(f"schema is {found.get('schema')!r}, not {SCHEMA!r}")
    try:
        tasks = found["tasks"]
        profile = Profile(
            config=found["config"],
            environment=found["environment"],
            kinds=[(str(name), str(phase)) for name, phase in found["ops"]],
            kind=[int(kind) for kind in tasks["op"]],
            seconds=[float(s) for s in tasks["mean_s"]],
            flop=[int(n) for n in tasks["flop"]],
            bytes=[int(n) for n in tasks["bytes"]],
            op_first=[int(first) for first in found["op_first"]],
            nodes=[int(node) for node in found["nodes"]],
            edges=[(int(a), int(b)) for a, b in found["edges"]],
            crossing=[(int(a), int(b)) for a, b in found["crossing"]],
            filler=[bool(flag) for flag in tasks.get("filler", [False] * len(tasks["op"]))],  # older ones lack it
            whole=[float(share) for share in tasks.get("whole", [0.0] * len(tasks["op"]))],
        )
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"the profile lacks or garbles {error}") from None
    if not all(map(math.isfinite, profile.seconds)):
        raise ValueError("a task's time is no finite number")
    if not all(0 <= share <= 1 for share in profile.whole):
        raise ValueError("a task's share in `whole` is not from 0 to 1")
    count, nodes = len(profile.seconds), len(profile.nodes)
    columns = (profile.kind, profile.flop, profile.bytes, profile.filler, profile.whole)
    if set(map(len, columns)) != {count} or count == 0:
        raise ValueError("the columns of `tasks` are empty or not equally long")
    if profile.op_first[0] != 0 or profile.op_first[-1] != count or any(a > b for a, b in pairwise(profile.op_first)):
        raise ValueError(f"`op_first` does not go from 0 to the {count} tasks")
    if sorted(task for task in profile.nodes if task != WAIT) != list(range(count)):
        raise ValueError("`nodes` does not name each task once")
    if any(not 0 <= node < nodes for edges in (profile.edges, profile.crossing) for edge in edges for node in edge):
        raise ValueError("an edge leads to a node that is not there")
    return profile
