"""Bounds of any schedule and of greedy schedules, from a graph's work and span.

Source: Brent 1974; Blumofe & Leiserson 1999. T1 is the work, Tinf the span, P threads; seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

Edge = tuple[int, int]


@dataclass(frozen=True)
class Bounds:
    """Of one step on `threads` threads. low_s: max(T1/P, Tinf); greedy_s: T1/P + Tinf."""

    threads: int
    low_s: float
    greedy_s: float
    speedup_high: float  # T1 / low_s: upper bound of the speedup over one thread


@dataclass(frozen=True)
class WorkSpan:
    """Work, and the spans of the graph and of the same tasks with a barrier after each op.

    gain_limit: fork-join's span / the graph's: upper bound of the gain of tasks over the best fork-join.
    """

    work_s: float
    span_s: float
    fork_join_span_s: float
    parallelism: float
    fork_join_parallelism: float
    gain_limit: float
    task: list[Bounds]
    fork_join: list[Bounds]


def work_span(work_s: float, span_s: float, fork_join_span_s: float, threads: Sequence[int]) -> WorkSpan:
    """Bounds for each number of threads. Raises ValueError where work or a span is not positive."""
    if min(work_s, span_s, fork_join_span_s) <= 0:
        raise ValueError(f"work {work_s:g} s and spans {span_s:g} s, {fork_join_span_s:g} s have to be positive")
    return WorkSpan(
        work_s=work_s,
        span_s=span_s,
        fork_join_span_s=fork_join_span_s,
        parallelism=work_s / span_s,
        fork_join_parallelism=work_s / fork_join_span_s,
        gain_limit=fork_join_span_s / span_s,
        task=[bounds(work_s, span_s, count) for count in threads],
        fork_join=[bounds(work_s, fork_join_span_s, count) for count in threads],
    )


def bounds(work_s: float, span_s: float, threads: int) -> Bounds:
    low_s = max(work_s / threads, span_s)
    return Bounds(threads, low_s, work_s / threads + span_s, work_s / low_s)


def span(cost_s: Sequence[float], edges: Iterable[Edge]) -> float:
    """The costliest path through nodes that are in a topological order. Raises ValueError if an edge goes back."""
    ready_s = [0.0] * len(cost_s)
    for a, b in sorted(edges):
        if a >= b:
            raise ValueError(f"edge {a} -> {b} does not go forward")
        ready_s[b] = max(ready_s[b], ready_s[a] + cost_s[a])
    return max((ready + cost for ready, cost in zip(ready_s, cost_s, strict=True)), default=0.0)


def steady_span(cost_s: Sequence[float], edges: Sequence[Edge], crossing: Sequence[Edge], iterations: int = 4) -> float:
    """Growth of the span with each further iteration: the span of a step if steps overlap.

    crossing: edges from a node of one iteration to a node of the next.
    """
    half = iterations // 2
    return (_unrolled(cost_s, edges, crossing, iterations) - _unrolled(cost_s, edges, crossing, half)) / (
        iterations - half
    )


def _unrolled(cost_s: Sequence[float], edges: Sequence[Edge], crossing: Sequence[Edge], iterations: int) -> float:
    nodes = len(cost_s)
    every = [(a + i * nodes, b + i * nodes) for i in range(iterations) for a, b in edges]
    every += [(a + i * nodes, b + (i + 1) * nodes) for i in range(iterations - 1) for a, b in crossing]
    return span(list(cost_s) * iterations, every)


def fork_join_span(cost_s: Sequence[float], op_first: Sequence[int]) -> float:
    """The span with a barrier after each op: the costliest tile of each. op_first: where each op's tasks begin, and
    their number at last."""
    return sum(max(cost_s[a:b]) for a, b in pairwise(op_first) if b > a)
