"""A trace in Paraver's format: records (.prv), what their numbers mean (.pcf) and the rows' names (.row).

Source: Paraver trace format 2.0 (BSC): states `1:`, events `2:`, communications `3:`, here the dependencies between
threads; integers, 1-based, sorted by time.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from gpt2core.spec.phases import PHASES
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
    cores = cpu_of(trace)
    threads = len(trace.threads)
    yield f"#Paraver ({at:%d/%m/%Y} at {at:%H:%M}):{trace.duration_ns}_ns:1({len(cores)}):1:1({threads}:1)"
    for _, _, line in sorted(records(trace, cores)):
        yield line


def cpu_of(trace: Trace) -> dict[int, int]:
    """The number, from 1, of each core."""
    return {core: number for number, core in enumerate(sorted(set(trace.cores)), start=1)}


def records(trace: Trace, cpus: dict[int, int]) -> Iterator[tuple[int, int, str]]:
    """(time, kind, line) of every record, in no order."""
    numbers = op_numbers(trace.kinds)
    place = [f"{cpus[core]}:1:1:{thread}" for thread, core in enumerate(trace.cores, start=1)]
    for thread, spans in enumerate(trace.threads):
        where = place[thread]
        end = 0
        for what, _, begin, until, delay in spans:
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
                    f"2:{where}:{begin}:{OP}:{numbers[trace.call_kind[what]]}"
                    f":{LAYER}:{0 if layer is None else layer + 1}:{PHASE}:{PHASES.index(phase) + 1}"
                )
                yield until, 2, f"2:{where}:{until}:{OP}:0:{LAYER}:0:{PHASE}:0"
            else:
                yield begin, 2, f"2:{where}:{begin}:{WAIT}:{WAIT_VALUES[what]}"
                yield until, 2, f"2:{where}:{until}:{WAIT}:0"
            end = until
        if trace.duration_ns > end:
            yield end, 1, f"1:{where}:{end}:{trace.duration_ns}:{NOTHING}"
        for index, step in enumerate(trace.steps()):
            flagged = int(bool(trace.reasons(index)))
            yield step.begin_ns, 2, f"2:{where}:{step.begin_ns}:{ITERATION}:{step.step + 1}:{FLAGGED}:{flagged}"
        yield trace.step_end_ns[-1], 2, f"2:{where}:{trace.step_end_ns[-1]}:{ITERATION}:0:{FLAGGED}:0"
    for arrow in trace.arrows():
        sender, receiver = place[arrow.from_thread], place[arrow.to_thread]
        size = trace.profile.bytes[trace.call_task[arrow.sender]]
        tag = numbers[trace.call_kind[arrow.sender]]
        yield arrow.from_ns, 3, (
            f"3:{sender}:{arrow.from_ns}:{arrow.from_ns}:{receiver}:{arrow.to_ns}:{arrow.to_ns}:{size}:{tag}"
        )


def pcf(trace: Trace) -> str:
    """The .pcf file: states with their colours, event types with the names of their values."""
    layers = sorted({layer for layer in trace.layer if layer is not None})
    kinds = sorted(zip(op_numbers(trace.kinds), trace.kinds, strict=True))
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
    """The .row file: names of cores and threads."""
    cores = sorted(set(trace.cores))
    return "\n".join([
        f"LEVEL CPU SIZE {len(cores)}", *(f"core {core}" for core in cores), "",
        f"LEVEL THREAD SIZE {len(trace.threads)}",
        *(f"thread {thread} on core {core}" for thread, core in enumerate(trace.cores)), "",
    ])  # fmt: skip
