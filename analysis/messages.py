"""What the ranks of a traced run sent to each other, and when it arrived."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from taskloom.analysis.trace import Trace


class Message(NamedTuple):
    """What one rank sent another in one exchange of a step: from the end of the task that sent it until the receiver
    found that all of the exchange had arrived. Each end is in nanoseconds of its own rank."""

    label: str  # of the task that waits for it
    step: int
    bytes: int
    sender: int
    call: int  # that sent it
    from_thread: int
    began_ns: int  # of that call
    from_ns: int
    receiver: int
    to_thread: int  # of the task that waits
    to_ns: int


def messages(trace: Trace) -> Iterator[Message]:
    """The messages of a trace, as far as it has both ends; none of one rank."""
    ranks = trace.ranks
    numbers = [{label: task for task, label in enumerate(each.label)} for each in ranks]
    for sender, of in enumerate(ranks):
        for task, receiver, size in of.sends:
            at = ranks[receiver]
            label = of.label[task].replace("_send", "_arrived", 1)
            if label not in numbers[receiver]:
                continue
            waits = numbers[receiver][label]
            for step in range(of.first_step, of.first_step + len(of.step_end_ns)):
                sent, waited = of.ended.get((task, step)), at.ended.get((waits, step))
                if sent is None or waited is None:
                    continue
                to_ns = at.completed[waits][step - at.first_step] if waits in at.completed else waited[0]
                sent_ns = sent[0] + of.begin_ns - at.begin_ns  # by the receiver's time
                yield Message(
                    label, step, size, sender, sent[3], sent[1], sent[2], sent[0], receiver, waited[1],
                    max(to_ns, sent_ns),
                )  # fmt: skip
