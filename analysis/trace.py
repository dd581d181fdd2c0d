"""A trace of the timed steps: when each thread ran or waited (taskloom-trace-1), and values derived from it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, NamedTuple
from zlib import crc32

from gpt2core.spec.phases import PHASES
from gpt2core.spec.wording import counted, slices
from taskloom.analysis import profile
from taskloom.analysis.profile import WAIT, Profile

SCHEMA = "taskloom-trace-1"
BARRIER, STARVATION, IDLE = -1, -2, -3  # spans without a task
WAITS = {BARRIER: "barrier", STARVATION: "starvation", IDLE: "idle"}
SHARED = ("schema", "config", "environment")  # by all ranks
# Numbers by which viewers colour ops, the same in every run. Other ops get one from their name.
NUMBERED = (
    "tokens", "encoder", "layernorm", "qkv", "attention", "projection", "residual", "fc", "gelu", "fc_projection",
    "logits", "cross_entropy", "mean_loss", "logits_dinp", "logits_dweight", "fc_projection_dinp",
    "fc_projection_dweight", "fc_dinp", "fc_dweight", "projection_dinp", "projection_dweight", "qkv_dinp",
    "qkv_dweight", "layernorm_dweight", "adamw", "point", "attention_rounding",
)  # fmt: skip


class Span(NamedTuple):
    """Span of a thread, a call of a task or a wait, in nanoseconds since the first timed step began.

    run_delay_ns: the part of it for which the thread was preempted. When that was within the span is unknown; it is
    drawn and counted at the end.
    """

    what: int
    step: int
    begin_ns: int
    end_ns: int
    run_delay_ns: int = 0

    @property
    def ran_until_ns(self) -> int:
        return self.end_ns - self.run_delay_ns


class Arrow(NamedTuple):
    """The last satisfied dependency of a task: from the end of one task to the begin of another."""

    sender: int  # its last call
    from_thread: int
    began_ns: int  # of that call
    from_ns: int
    to_thread: int
    to_ns: int


@dataclass(frozen=True)
class Trace:
    """A trace. A task is one or more successive calls of a thread.

    kinds: (op, phase) of calls; call_kind, call_task: kind and task of each call. label, layer: of each task. threads:
    each thread's spans in order; they do not overlap. step_end_ns: one for each timed step; flagged: why its evidence
    flags it, empty for undisturbed steps.

    A run of several ranks has the trace of rank 0, and those of the `others` in it, each on the clock of its own first
    timed step, which began `begin_ns` after the earliest rank's. node: its name; "" of one rank.
    sends: (task, rank, bytes) of what a task sends to another rank. completed: when tasks that only wait for messages
    were complete in each timed step, where that was after their last call.
    """

    profile: Profile
    kinds: Sequence[tuple[str, str]]
    call_kind: Sequence[int]
    call_task: Sequence[int]
    label: Sequence[str]
    layer: Sequence[int | None]
    cores: Sequence[int]
    first_step: int
    step_end_ns: Sequence[int]
    threads: Sequence[Sequence[Span]]
    complete: bool
    flagged: Sequence[Sequence[str]] = ()
    begin_ns: int = 0
    node: str = ""
    sends: Sequence[tuple[int, int, int]] = ()
    completed: Mapping[int, Sequence[int]] = field(default_factory=dict)
    others: Sequence[Trace] = ()

    @property
    def ranks(self) -> list[Trace]:
        """The trace of each rank."""
        return [self, *self.others]

    @cached_property
    def duration_ns(self) -> int:
        return max([*self.step_end_ns, *(spans[-1].end_ns for spans in self.threads if spans)])

    @property
    def title(self) -> str:
        """The run's settings in a few words."""
        c = self.profile.config
        sync = f" sync {c['sync']}" if c["scheduler"] == "task" else ""
        return f"{c['scheduler']}{sync}, {counted(c['threads'], 'thread')}, slices {slices(c)}"

    def kind(self, call: int) -> tuple[str, str]:
        """(op, phase) of a call."""
        return self.kinds[self.call_kind[call]]

    def steps(self) -> Iterator[Span]:
        """The timed steps, numbered as in the result (warm-up counts)."""
        begin = 0
        for index, end in enumerate(self.step_end_ns):
            yield Span(0, self.first_step + index, begin, end)
            begin = end

    def reasons(self, index: int) -> Sequence[str]:
        """Why a timed step is flagged."""
        return self.flagged[index] if self.flagged else ()

    def step_index(self, at_ns: int) -> int:
        """Index of the timed step at a time."""
        return min(bisect_right(self.step_end_ns, at_ns), len(self.step_end_ns) - 1)

    @cached_property
    def predecessors(self) -> list[list[tuple[int, int]]]:
        """For each task its predecessors, and how many steps earlier they ran."""
        found: list[list[tuple[int, int]]] = [[] for _ in self.label]
        nodes = self.profile.nodes
        for back, edges in ((0, self.profile.edges), (1, self.profile.crossing)):
            for a, b in edges:
                if nodes[a] != WAIT and nodes[b] != WAIT:
                    found[nodes[b]].append((nodes[a], back))
        return found

    @cached_property
    def ended(self) -> dict[tuple[int, int], tuple[int, int, int, int]]:
        """Of the last call of each task in each step its end, thread, begin and number."""
        return {
            (self.call_task[call], step): (end_ns, thread, begin_ns, call)
            for thread, spans in enumerate(self.threads)
            for call, step, begin_ns, end_ns, _ in spans
            if call >= 0
        }

    def arrows(self) -> Iterator[Arrow]:
        """For each task, in order of time, its last satisfied dependency, if another thread satisfied it."""
        begun: dict[tuple[int, int], tuple[int, int]] = {}
        for thread, spans in enumerate(self.threads):
            for call, step, begin_ns, _, _ in spans:
                if call >= 0:
                    begun.setdefault((self.call_task[call], step), (begin_ns, thread))
        ended = self.ended
        for (task, step), (begin_ns, thread) in sorted(begun.items(), key=lambda item: item[1]):
            before = ((other, step - back) for other, back in self.predecessors[task])
            last = max((ended[key] for key in before if key in ended), default=None)
            if last is not None and last[1] != thread:
                end_ns, other_thread, began_ns, call = last
                yield Arrow(call, other_thread, began_ns, end_ns, thread, max(begin_ns, end_ns))


def trace_of(found: Mapping[str, Any]) -> Trace:
    """Read a trace from an artifact's JSON. Raises ValueError with the reason."""
    first = _of_one_rank(found)
    try:
        others = [_of_one_rank({**{name: found[name] for name in SHARED}, **each}) for each in found.get("ranks", ())]
    except TypeError:
        raise ValueError("`ranks` is not a list of objects") from None
    trace = replace(first, others=others)
    for each in trace.ranks:
        if (each.first_step, len(each.step_end_ns)) != (first.first_step, len(first.step_end_ns)):
            raise ValueError("the ranks have not the same steps")
        if any(not 0 <= task < len(each.label) or not 0 <= to < len(trace.ranks) for task, to, _ in each.sends):
            raise ValueError("`sends` names an unknown task or rank")
        if any(len(at_ns) != len(each.step_end_ns) for at_ns in each.completed.values()):
            raise ValueError("`completed` has not an entry for each step")
    return trace


def _of_one_rank(found: Mapping[str, Any]) -> Trace:
    if found.get("schema") != SCHEMA:
        raise ValueError(f"schema is {found.get('schema')!r}; expected {SCHEMA!r}")
    tasks = profile.profile_of({**found, "schema": profile.SCHEMA})
    try:
        label = [
            f"{tasks.kinds[kind][0]}" + ("" if layer is None else f"[{layer}]") + (f" {tile}" if tile else "")
            for kind, layer, tile in zip(
                tasks.kind, found["tasks"]["layer"], found["tasks"]["label"], strict=True
            )
        ]
        trace = Trace(
            profile=tasks,
            kinds=[(str(name), str(phase)) for name, phase in found["call_ops"]],
            call_kind=[int(kind) for kind in found["calls"]["op"]],
            call_task=[int(task) for task in found["calls"]["task"]],
            label=label,
            layer=found["tasks"]["layer"],
            cores=[int(core) for core in found["cores"]],
            first_step=int(found["first_step"]),
            step_end_ns=[int(end) for end in found["step_end_ns"]],
            threads=[spans_of(columns) for columns in found["threads"]],
            complete=bool(found["complete"]),
            flagged=[[str(reason) for reason in reasons] for reasons in found.get("flagged", ())],
            begin_ns=int(found.get("begin_ns", 0)),
            node=str(found.get("node", "")),
            sends=[
                (int(task), int(to), int(size)) for task, to, size in _rows(found.get("sends"), "task", "to", "bytes")
            ],
            completed={
                int(task): [int(at) for at in at_ns] for task, at_ns in _rows(found.get("completed"), "task", "at_ns")
            },
        )
    except (KeyError, IndexError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"missing or malformed entry of the trace: {error}") from None
    if not trace.step_end_ns or len(trace.cores) != len(trace.threads):
        raise ValueError("the trace has no step, or not a core for each thread")
    count = len(trace.call_task)
    if len(trace.call_kind) != count or any(not 0 <= kind < len(trace.kinds) for kind in trace.call_kind):
        raise ValueError("the columns of `calls` differ in length, or a call has an unknown kind")
    if trace.flagged and len(trace.flagged) != len(trace.step_end_ns):
        raise ValueError("`flagged` has not an entry for each step")
    if any(not IDLE <= span.what < count for spans in trace.threads for span in spans):
        raise ValueError("a span names an unknown call")
    return trace


def _rows(columns: Mapping[str, Sequence[Any]] | None, *names: str) -> Iterator[tuple[Any, ...]]:
    """Rows of columns; none without columns, which only traces of several ranks have."""
    return zip(*(columns[name] for name in names), strict=True) if columns is not None else iter(())


def spans_of(columns: Mapping[str, Any]) -> list[Span]:
    """A thread's spans from its columns; each begins `gap_ns` after the end of the one before. Few have a run delay."""
    gaps, durations = columns["gap_ns"], columns["duration_ns"]
    if gaps and min(min(gaps[1:], default=0), min(durations)) < 0:
        raise ValueError("spans of one thread overlap")
    ends = accumulate(gap + duration for gap, duration in zip(gaps, durations, strict=True))
    spans = [
        Span(what, step, end - duration, end)
        for what, step, end, duration in zip(columns["what"], columns["step"], ends, durations, strict=True)
    ]
    delays = columns.get("run_delay", {"span": (), "ns": ()})
    for index, delay_ns in zip(delays["span"], delays["ns"], strict=True):
        if not 0 <= index < len(spans) or not 0 <= delay_ns <= durations[index]:
            raise ValueError(f"the run delay of span {index} is not within it")
        spans[index] = spans[index]._replace(run_delay_ns=int(delay_ns))
    return spans


def op_numbers(kinds: Sequence[tuple[str, str]]) -> list[int]:
    """A number for each (op, phase), from 1, the same for all models and slices."""
    numbers: list[int] = []
    for name, phase in kinds:
        place = NUMBERED.index(name) if name in NUMBERED else 100 + crc32(name.encode()) % 900
        number = 1 + place + 1000 * (PHASES.index(phase) if phase in PHASES else len(PHASES))
        while number in numbers:
            number += 1
        numbers.append(number)
    return numbers


def busy(begins: Sequence[int], ends: Sequence[int], edges: Sequence[int]) -> list[float]:
    """Mean number of active spans between consecutive edges."""
    areas = [started - ended for started, ended in zip(_before(begins, edges), _before(ends, edges), strict=True)]
    spans = zip(pairwise(areas), pairwise(edges), strict=True)
    return [(later - earlier) / (end - begin) for (earlier, later), (begin, end) in spans]


def _before(times: Sequence[int], edges: Sequence[int]) -> list[int]:
    """The sum over all times t of max(0, edge - t), for each edge."""
    ordered = sorted(times)
    sums = list(accumulate(ordered, initial=0))
    counts = [bisect_left(ordered, edge) for edge in edges]
    return [count * edge - sums[count] for count, edge in zip(counts, edges, strict=True)]
