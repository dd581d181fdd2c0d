"""The tasks and messages of a step with another number of ranks, from the profile of one rank of several.

The profile has the bytes of each exchange, and of each task the share of its cost that every rank has whole. Ranks that
divide the batch (`parallel` data) exchange gradients and weights. Ranks that divide the matrices (tensor) exchange
rows: each sends all of its own to every other one, and adds the parts of all. Hybrids do both, and gather the rows of
their parts of the batch in between.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from gpt2core.spec.wording import counted
from taskloom.analysis.profile import Profile

Way = Literal["strong", "weak"]
# Kinds of exchanges by what a rank sends to one other rank: as much as always, of a shard of the weights, or rows of
# its part of the batch. All others send rows of the whole batch.
ALWAYS, SHARDS, OWN_ROWS = ("loss", "norm"), ("gradients", "weights"), ("gather", "gather_dinp")
OF_EACH = ("gradients", "gather_dinp")  # those that send each rank something else; others send all the same
SEND, ARRIVED, FOLD, SOFTMAX = "_send", "_arrived", "_fold", "cross_entropy"


class Exchange(NamedTuple):
    """Messages of a rank to all others, sent by one task; another one is complete when they have arrived."""

    send: int
    arrived: int
    bytes: float


@dataclass(frozen=True)
class Ranks:
    """`total` ranks instead of the `source` ranks of a profile. parallel: what they divide."""

    source: int
    total: int
    way: Way
    parallel: str = "data"

    @property
    def rows(self) -> float:
        """The batch, relative to that of the profile."""
        return {"strong": 1.0, "weak": self.total / self.source}[self.way]

    @property
    def part(self) -> float:
        """A rank's part of the batch, or of the matrices, relative to that of the profile."""
        return self.source / self.total

    def to_one(self, kind: str) -> float:
        """What a rank sends to another one in an exchange, relative to the profile."""
        rows = 1.0 if kind in (*ALWAYS, *SHARDS) else self.rows
        return rows * (self.part if kind in (*SHARDS, *OWN_ROWS) else 1.0)

    def to_all(self, kind: str) -> float:
        """What a rank sends to all others in an exchange, relative to the profile."""
        return self.to_one(kind) * (self.total - 1) / (self.source - 1)

    def exchanges(self, profile: Profile) -> list[Exchange]:
        """The exchanges of a rank in a step. Raises ValueError for a kind that such ranks do not have."""
        tasks, found = _by_op(profile), list[Exchange]()
        for kind in sent_kinds(profile):
            if self.parallel == "data" and kind not in (*ALWAYS, *SHARDS):
                raise ValueError(f"exchanges by {kind}{SEND} are not forecast")
            sends, waits = tasks[kind + SEND], tasks.get(kind + ARRIVED, [])
            if len(waits) != len(sends):
                raise ValueError(
                    f"{counted(len(sends), 'task')} {kind}{SEND} of the profile, but {len(waits)} that wait"
                )
            size = self.to_all(kind) * (1 if kind in OF_EACH else self.source - 1)
            found += [Exchange(send, wait, profile.bytes[send] * size) for send, wait in zip(sends, waits, strict=True)]
        return found

    def scaled(self, profile: Profile, overhead_s: float = 0.0) -> Profile:
        """The profile as that of one of these ranks. overhead_s: of each task, for scheduling; their number stays.

        What a rank does not have whole is as much smaller as there are more ranks. All but updates grow with the batch.
        Calls that send take time in proportion to their bytes. So do sums of the ranks' parts, whose bytes are more by
        what is received from each further rank.
        """
        factors = list[float]()
        for whole, (name, phase) in zip(profile.whole, (profile.kinds[kind] for kind in profile.kind), strict=True):
            work = (1.0 if phase == "update" else self.rows) * (whole + (1 - whole) * self.part)
            factors.append(self.to_all(name.removesuffix(SEND)) if name.endswith(SEND) else work)
        tasks = _by_op(profile)
        for name, folds in tasks.items():
            kind, is_fold, _ = name.partition(FOLD)
            if is_fold and kind + SEND in tasks and kind != SOFTMAX:  # which is that of a rank's part of the logits
                peers = self.source - 1 if kind in OF_EACH else 1
                for task, send in zip(folds, tasks[kind + SEND], strict=True):
                    more = (self.total - self.source) * profile.bytes[send] / peers
                    factors[task] = self.to_one(kind) * (1 + more / profile.bytes[task])
        seconds = [factor * (s + overhead_s) for factor, s in zip(factors, profile.seconds, strict=True)]
        return replace(profile, seconds=seconds)


def sent_kinds(profile: Profile) -> list[str]:
    """The kinds of exchanges, in program order."""
    return [name.removesuffix(SEND) for name in _by_op(profile) if name.endswith(SEND)]


def _by_op(profile: Profile) -> dict[str, list[int]]:
    """The tasks of each op, in program order."""
    tasks: dict[str, list[int]] = {}
    for task, kind in enumerate(profile.kind):
        tasks.setdefault(profile.kinds[kind][0], []).append(task)
    return tasks
