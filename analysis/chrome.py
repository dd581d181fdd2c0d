"""Traces as Chrome/Perfetto JSON, in pieces of text: a process for each run, or for each of its ranks, a row for each
thread, one for the steps, and of several ranks one for what arrives.

Source: Trace Event Format (complete events X, metadata M, flows s and f, counters C); times in microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from taskloom.analysis import trace
from taskloom.analysis.messages import Message, messages
from taskloom.analysis.trace import Arrow, Span, Trace

MOST_ARROWS = 20_000  # arrows per run, from its first steps
COUNTS = 4000  # points of the curve of busy cores
LEAST_GAP_NS = 1000  # shorter times between a thread's spans are left blank
ARRIVAL_NS = 1000  # shown length of an arrival, if the next one is not sooner
SCHEDULING = trace.IDLE - 1
FLAGGED = '"cat":"flagged","cname":"bad","args":{'
PREEMPTED = '"not running","cat":"preempted","cname":"black","args":{"place":"somewhere within the task",'
WAITING = {
    trace.BARRIER: '"wait: barrier","cat":"waiting","cname":"terrible","args":{',
    trace.STARVATION: '"wait: starvation","cat":"waiting","cname":"bad","args":{',
    trace.IDLE: '"idle","cat":"waiting","cname":"grey","args":{',
}
COLOURS = (  # colours of chrome://tracing; Perfetto chooses colours by the event's name
    "thread_state_running", "thread_state_runnable", "thread_state_iowait", "rail_response", "rail_animation",
    "rail_idle", "rail_load", "startup", "cq_build_running", "cq_build_passed", "heap_dump_stack_frame", "good",
    "vsync_highlight_color", "generic_work", "olive", "yellow", "light_memory_dump",
)  # fmt: skip


def chrome(traces: Sequence[tuple[str, Trace]]) -> Iterator[str]:
    """The JSON text of (name, trace) pairs. Several traces are aligned: their n-th steps begin at one time."""
    starts = aligned_starts([found for _, found in traces])
    yield '{"displayTimeUnit":"ns","traceEvents":[\n'
    separator = ""
    for event in _events(traces, starts):
        yield separator + event
        separator = ",\n"
    yield "\n]}\n"


def _events(traces: Sequence[tuple[str, Trace]], starts: Sequence[int]) -> Iterator[str]:
    number = 1
    for name, found in traces:
        several = bool(found.others)
        ranks = [
            Process(number + rank, f"{name}, rank {rank}" if several else name, each, found, starts)
            for rank, each in enumerate(found.ranks)
        ]
        for process in ranks:
            yield from process.events()
        if several:
            yield from _messages(ranks, list(messages(found)))
        number += len(ranks)


def _messages(ranks: Sequence[Process], sent: Sequence[Message]) -> Iterator[str]:
    """Arrivals, each once in a row of its rank, and an arrow to it from each task that sent something."""
    arrived: list[dict[tuple[int, str, int], int]] = [{} for _ in ranks]  # (time, label, step): bytes
    for each in sent:
        of = arrived[each.receiver]
        key = each.to_ns, each.label, each.step
        of[key] = of.get(key, 0) + each.bytes
    for process, of in zip(ranks, arrived, strict=True):
        yield from process.arrivals(of)
    for number, each in zip(range(MOST_ARROWS), sorted(sent, key=lambda one: one.step), strict=False):
        start, end = ranks[each.sender], ranks[each.receiver]
        shared = f'"id":"{start.number}.m{number}","name":"message","cat":"message"'
        place = f'"pid":{start.number},"tid":{each.from_thread},"ts":{start.us(each.from_ns - 1, each.began_ns)}'
        yield f'{{"ph":"s",{shared},{place}}}'
        place = f'"pid":{end.number},"tid":{end.arrivals_row},"ts":{end.us(each.to_ns)}'
        yield f'{{"ph":"f","bp":"e",{shared},{place}}}'


def aligned_starts(traces: Sequence[Trace]) -> list[int]:
    """Aligned begin of each timed step of rank 0, by the slowest trace."""
    starts = [max(found.begin_ns for found in traces)]
    lengths = [[span.end_ns - span.begin_ns for span in found.steps()] for found in traces]
    for index in range(max(len(each) for each in lengths)):
        starts.append(starts[-1] + max(each[index] for each in lengths if index < len(each)))
    return starts


@dataclass(frozen=True)
class Process:
    """One rank's events as JSON text, one each. first: the trace of rank 0. starts: when each timed step of rank 0 is
    shown to begin, in nanoseconds."""

    number: int
    name: str
    trace: Trace
    first: Trace
    starts: Sequence[int]

    @property
    def steps_row(self) -> int:
        return len(self.trace.threads)

    @property
    def arrivals_row(self) -> int:
        return self.steps_row + 1

    def events(self) -> Iterator[str]:
        found, steps_row = self.trace, self.steps_row
        yield self.metadata(0, "process_name", {"name": self.name})
        rows = {steps_row: "steps", **{i: f"thread {i} on core {core}" for i, core in enumerate(found.cores)}}
        for row, name in rows.items():
            yield self.metadata(row, "thread_name", {"name": name})
            yield self.metadata(row, "thread_sort_index", {"sort_index": -1 if row == steps_row else row})
        for index, span in enumerate(found.steps()):
            yield self.complete(steps_row, span, f'"step {span.step}","cat":"step","args":{{')
            if reasons := ", ".join(found.reasons(index)):
                yield self.complete(steps_row, span, f'{json.dumps(f"flagged: {reasons}")},{FLAGGED}')
        described = [self.described(call) for call in range(len(found.call_task))]
        for thread, spans in enumerate(found.threads):
            end_ns = 0
            for span in spans:
                if span.begin_ns - end_ns >= LEAST_GAP_NS:
                    gap = Span(SCHEDULING, -1, end_ns, span.begin_ns)
                    yield self.complete(thread, gap, '"scheduling","cat":"scheduling","cname":"white","args":{')
                yield self.complete(thread, span, described[span.what] if span.what >= 0 else WAITING[span.what])
                if span.run_delay_ns:
                    yield self.complete(thread, span._replace(begin_ns=span.ran_until_ns), PREEMPTED, span.begin_ns)
                end_ns = span.end_ns
        for number, arrow in zip(range(MOST_ARROWS), found.arrows(), strict=False):
            yield from self.flow(number, arrow)
        yield from self.counts()

    def us(self, at_ns: int, began_ns: int | None = None) -> str:
        """A time in the aligned trace: shifted like rank 0's step that ran at that time, or at began_ns."""
        later_ns = self.trace.begin_ns - self.first.begin_ns
        index = self.first.step_index((at_ns if began_ns is None else began_ns) + later_ns)
        begin_ns = self.first.step_end_ns[index - 1] if index else 0
        return f"{(at_ns + later_ns - begin_ns + self.starts[index]) / 1000:.3f}"

    def metadata(self, row: int, what: str, args: dict[str, str | int]) -> str:
        return json.dumps({"ph": "M", "pid": self.number, "tid": row, "name": what, "args": args})

    def described(self, call: int) -> str:
        """A call's name, and the fields that all its events share."""
        (op, phase), task = self.trace.kind(call), self.trace.call_task[call]
        (number,) = trace.op_numbers([(op, phase)])
        return (
            f'{json.dumps(op)},"cat":{json.dumps(phase)},"cname":"{COLOURS[number % len(COLOURS)]}",'
            f'"args":{{"task":{json.dumps(self.trace.label[task])},"layer":{json.dumps(self.trace.layer[task])},'
        )

    def complete(self, row: int, span: Span, text: str, began_ns: int | None = None) -> str:
        """A span's event; began_ns: when the span began in which it lies."""
        step = span.step if span.step >= 0 else self.trace.first_step + self.trace.step_index(span.begin_ns)
        return (
            f'{{"ph":"X","pid":{self.number},"tid":{row},"ts":{self.us(span.begin_ns, began_ns)},'
            f'"dur":{(span.end_ns - span.begin_ns) / 1000:.3f},"name":{text}"step":{step}}}}}'
        )

    def flow(self, number: int, arrow: Arrow) -> Iterator[str]:
        """An arrow binds to the spans that enclose its ends, so it leaves just before the sender's end."""
        shared = f'"pid":{self.number},"id":"{self.number}.{number}","name":"dependency","cat":"dependency"'
        yield f'{{"ph":"s",{shared},"tid":{arrow.from_thread},"ts":{self.us(arrow.from_ns - 1, arrow.began_ns)}}}'
        yield f'{{"ph":"f","bp":"e",{shared},"tid":{arrow.to_thread},"ts":{self.us(arrow.to_ns)}}}'

    def arrivals(self, sizes: Mapping[tuple[int, str, int], int]) -> Iterator[str]:
        """Short events of what had arrived: bytes by time, label and step."""
        yield self.metadata(self.arrivals_row, "thread_name", {"name": "arrived"})
        yield self.metadata(self.arrivals_row, "thread_sort_index", {"sort_index": self.arrivals_row})
        found = sorted(sizes)
        ends = [*(at_ns for at_ns, *_ in found[1:]), *(at_ns + ARRIVAL_NS for at_ns, *_ in found[-1:])]
        for (at_ns, label, step), until_ns in zip(found, ends, strict=True):
            span = Span(0, step, at_ns, min(until_ns, at_ns + ARRIVAL_NS))
            size = sizes[at_ns, label, step]
            yield self.complete(
                self.arrivals_row, span, f'{json.dumps(label)},"cat":"message","cname":"good","args":{{"bytes":{size},'
            )

    def counts(self) -> Iterator[str]:
        """Number of busy cores, as means over short intervals."""
        tasks = [span for spans in self.trace.threads for span in spans if span.what >= 0]
        width = max(1, -(-self.trace.duration_ns // COUNTS))
        edges = list(range(0, self.trace.duration_ns + width, width))
        means = trace.busy([span.begin_ns for span in tasks], [span.ran_until_ns for span in tasks], edges)
        for begin_ns, mean in zip(edges, means, strict=False):
            yield (
                f'{{"ph":"C","pid":{self.number},"name":"busy cores","ts":{self.us(begin_ns)},'
                f'"args":{{"busy":{mean:.4f}}}}}'
            )
