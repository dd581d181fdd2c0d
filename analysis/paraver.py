"""A trace in Paraver's format: records (.prv), what their numbers mean (.pcf) and the rows' names (.row).

Source: Paraver trace format 2.0 (BSC): states `1:`, events `2:`, communications `3:`, here the dependencies between
threads and the messages between ranks, which are the tasks; integers, 1-based, sorted by time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from gpt2core.spec.phases import PHASES
from taskloom.analysis.messages import messages
from taskloom.analysis.trace import BARRIER, IDLE, STARVATION, Trace, op_numbers

NOTHING, RUNNING, SYNCHRONISATION, SCHEDULING, PREEMPTED = 0, 1, 5, 7, 9
STATES = {
    NOTHING: ("Idle", (117, 195, 255)),
    RUNNING: ("Running", (0, 0, 255)),
    SYNCHRONISATION: ("Synchronization", (235, 0, 0)),
    SCHEDULING: ("Scheduling and Fork/Join", (255, 255, 0)),
    PREEMPTED: ("Blocked", (0, 0, 0)),
}
STATE_OF = {BARRIER: SYNCHRONISATION, STARVATION: NOTHING, IDLE: NOTHING}
OP, LAYER, ITERATION, PHASE, WAIT, FLAGGED = range(90000001, 90000007)
WAIT_VALUES = {BARRIER: 1, STARVATION: 2, IDLE: 3}


def prv(trace: Trace, at: datetime) -> Iterator[str]:
    """The lines of the .prv file."""
    cpus, ranks, duration_ns, nodes = cpu_of(trace), trace.ranks, duration(trace), nodes_of(trace)
    cores = ",".join(str(sum(node == name for node, _ in cpus)) for name in nodes)
    threads = ",".join(f"{len(each.threads)}:{1 + nodes.index(each.node)}" for each in ranks)
    about = f"{duration_ns}_ns:{len(nodes)}({cores}):1:{len(ranks)}({threads})"
    yield f"#Paraver ({at:%d/%m/%Y} at {at:%H:%M}):{about}"
    for _, _, line in sorted(records(trace, cpus)):
        yield line


def nodes_of(trace: Trace) -> list[str]:
    """The nodes of the ranks, in the ranks' order."""
    return list(dict.fromkeys(each.node for each in trace.ranks))


def cpu_of(trace: Trace) -> dict[tuple[str, int], int]:
    """The number, from 1, of each (node, core), node by node."""
    nodes = nodes_of(trace)
    cpus = {(each.node, core) for each in trace.ranks for core in each.cores}
    return {cpu: number for number, cpu in enumerate(sorted(cpus, key=lambda c: (nodes.index(c[0]), c[1])), start=1)}


def duration(trace: Trace) -> int:
    """Nanoseconds from the earliest begin of a rank to the latest end."""
    return max(each.begin_ns + each.duration_ns for each in trace.ranks)


def numbers_of(trace: Trace) -> dict[tuple[str, str], int]:
    """The number of each kind of call."""
    kinds = list(dict.fromkeys(kind for each in trace.ranks for kind in each.kinds))
    return dict(zip(kinds, op_numbers(kinds), strict=True))


def records(trace: Trace, cpus: dict[tuple[str, int], int]) -> Iterator[tuple[int, int, str]]:
    """(time, kind, line) of every record, in no order."""
    numbers, end_ns, ranks = numbers_of(trace), duration(trace), trace.ranks
    places = [
        [f"{cpus[each.node, core]}:1:{rank}:{thread}" for thread, core in enumerate(each.cores, start=1)]
        for rank, each in enumerate(ranks, start=1)
    ]
    for each, place in zip(ranks, places, strict=True):
        yield from _of_rank(each, place, numbers, end_ns)
    for sent in messages(trace):
        start, end = ranks[sent.sender], ranks[sent.receiver]
        sender, receiver = places[sent.sender][sent.from_thread], places[sent.receiver][sent.to_thread]
        from_ns, to_ns = start.begin_ns + sent.from_ns, end.begin_ns + sent.to_ns
        yield _communication(sender, from_ns, receiver, to_ns, sent.bytes, numbers[start.kind(sent.call)])


def _communication(
    sender: str, from_ns: int, receiver: str, to_ns: int, size: int, tag: int
) -> tuple[int, int, str]:
    return from_ns, 3, f"3:{sender}:{from_ns}:{from_ns}:{receiver}:{to_ns}:{to_ns}:{size}:{tag}"


def _of_rank(
    trace: Trace, place: Sequence[str], numbers: Mapping[tuple[str, str], int], end_ns: int
) -> Iterator[tuple[int, int, str]]:
    """Records of one rank. end_ns: of the whole trace."""
    since = trace.begin_ns
    for thread, spans in enumerate(trace.threads):
        where = place[thread]
        end = 0
        for what, _, begun, ended, delay in spans:
            begin, until = since + begun, since + ended
            if begin > end:
                yield end, 1, f"1:{where}:{end}:{begin}:{SCHEDULING}"
            if until > begin:
                state = RUNNING if what >= 0 else STATE_OF[what]
                if until - delay > begin:
                    yield begin, 1, f"1:{where}:{begin}:{until - delay}:{state}"
                if delay:
                    yield until - delay, 1, f"1:{where}:{until - delay}:{until}:{PREEMPTED}"
            if what >= 0:
                layer = trace.layer[trace.call_task[what]]
                _, phase = trace.kind(what)
                yield begin, 2, (
                    f"2:{where}:{begin}:{OP}:{numbers[trace.kind(what)]}"
                    f":{LAYER}:{0 if layer is None else layer + 1}:{PHASE}:{PHASES.index(phase) + 1}"
                )
                yield until, 2, f"2:{where}:{until}:{OP}:0:{LAYER}:0:{PHASE}:0"
            else:
                yield begin, 2, f"2:{where}:{begin}:{WAIT}:{WAIT_VALUES[what]}"
                yield until, 2, f"2:{where}:{until}:{WAIT}:0"
            end = until
        if end_ns > end:
            yield end, 1, f"1:{where}:{end}:{end_ns}:{NOTHING}"
        for index, step in enumerate(trace.steps()):
            flagged = int(bool(trace.reasons(index)))
            begin = since + step.begin_ns
            yield begin, 2, f"2:{where}:{begin}:{ITERATION}:{step.step + 1}:{FLAGGED}:{flagged}"
        last = since + trace.step_end_ns[-1]
        yield last, 2, f"2:{where}:{last}:{ITERATION}:0:{FLAGGED}:0"
    for arrow in trace.arrows():
        size = trace.profile.bytes[trace.call_task[arrow.sender]]
        sender, receiver, tag = place[arrow.from_thread], place[arrow.to_thread], numbers[trace.kind(arrow.sender)]
        yield _communication(sender, since + arrow.from_ns, receiver, since + arrow.to_ns, size, tag)


def pcf(trace: Trace) -> str:
    """The .pcf file: states with their colours, event types with the names of their values."""
    layers = sorted({layer for each in trace.ranks for layer in each.layer if layer is not None})
    kinds = sorted((number, kind) for kind, number in numbers_of(trace).items())
    types: list[tuple[int, str, list[tuple[int, str]]]] = [
        (OP, "Op", [(number, f"{op} {phase}") for number, (op, phase) in kinds]),
        (LAYER, "Layer", [(layer + 1, f"layer {layer}") for layer in layers]),
        (PHASE, "Phase", list(enumerate(PHASES, start=1))),
        (ITERATION, "Iteration", [(span.step + 1, f"step {span.step}") for span in trace.steps()]),
        (FLAGGED, "Flagged step", [(1, "disturbed")]),
        (WAIT, "Wait", [(1, "barrier"), (2, "starvation"), (3, "no part in the work")]),
    ]
    lines = [
        "DEFAULT_OPTIONS", "", "LEVEL               THREAD", "UNITS               NANOSEC",
        "LOOK_BACK           100", "SPEED               1", "FLAG_ICONS          ENABLED",
        "NUM_OF_STATE_COLORS 1000", "YMAX_SCALE          37", "", "DEFAULT_SEMANTIC", "",
        "THREAD_FUNC         State As Is", "", "STATES",
        *(f"{number}    {name}" for number, (name, _) in STATES.items()),
        "", "STATES_COLOR",
        *(f"{number}    {{{red},{green},{blue}}}" for number, (_, (red, green, blue)) in STATES.items()),
    ]  # fmt: skip
    for number, name, values in types:
        lines += ["", "EVENT_TYPE", f"0    {number}    {name}"]
        if values:
            lines += ["VALUES", "0      End", *(f"{value}      {meaning}" for value, meaning in values)]
    return "\n".join([*lines, ""])


def row(trace: Trace) -> str:
    """The .row file: names of cores, nodes and threads. A core is named with its node if there are several."""
    nodes, several = nodes_of(trace), bool(trace.others)

    def named(node: str, core: int) -> str:
        return f"core {core}" + (f" of {node}" if len(nodes) > 1 else "")

    cores = [named(*cpu) for cpu in cpu_of(trace)]
    names = [
        (f"rank {rank}, " if several else "") + f"thread {thread} on {named(each.node, core)}"
        for rank, each in enumerate(trace.ranks)
        for thread, core in enumerate(each.cores)
    ]
    return "\n".join([
        f"LEVEL CPU SIZE {len(cores)}", *cores, "",
        *([f"LEVEL NODE SIZE {len(nodes)}", *nodes, ""] if len(nodes) > 1 else []),
        f"LEVEL THREAD SIZE {len(names)}", *names, "",
    ])  # fmt: skip
