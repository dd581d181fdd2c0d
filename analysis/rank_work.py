"""The tasks and messages of a step with another number of ranks, from the profile of one rank of several.

Ranks that divide the batch (`parallel` data) exchange gradients and weights. Ranks that divide the matrices (tensor)
exchange rows: each sends all of its own to every other one, and adds the parts of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from gpt2core.spec.wording import counted
from taskloom.analysis.profile import Profile

Way = Literal["strong", "weak"]
OF_BATCH = ("loss", "gradients", "weights", "norm")  # kinds of exchanges of ranks that divide the batch
# Of ranks that divide the matrices each does these ops for all rows; of the others, what belongs to its part. Ops that
# add the ranks' parts are named as the exchange.
OF_ROWS = ("tokens", "encoder", "residual", "layernorm", "layernorm_dweight", "mean_loss")
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
    def divides_matrices(self) -> bool:
        return self.parallel == "tensor"

    @property
    def rows(self) -> float:
        """The batch, relative to that of the profile."""
        return {"strong": 1.0, "weak": self.total / self.source}[self.way]

    @property
    def part(self) -> float:
        """A rank's part of the batch, or of the matrices, relative to that of the profile."""
        return self.source / self.total

    def exchanges(self, profile: Profile) -> list[Exchange]:
        """The exchanges of a rank in a step. Raises ValueError for a kind that such ranks do not have."""
        tasks, found = _by_op(profile), list[Exchange]()
        # A bucket's size, of which a rank sends all shards but its own, or its own to all others; else what one gets.
        parts = {"gradients": self.part / (self.source - 1), "weights": self.part, "loss": 1.0, "norm": 1.0}
        for kind in sent_kinds(profile):
            if kind not in OF_BATCH and not self.divides_matrices:
                raise ValueError(f"exchanges by {kind}{SEND} are not forecast")
            sends, waits = tasks[kind + SEND], tasks.get(kind + ARRIVED, [])
            if len(waits) != len(sends):
                raise ValueError(
                    f"{counted(len(sends), 'task')} {kind}{SEND} of the profile, but {len(waits)} that wait"
                )
            size = parts.get(kind, self.rows) * (self.total - 1)
            found += [Exchange(send, wait, profile.bytes[send] * size) for send, wait in zip(sends, waits, strict=True)]
        return found

    def scaled(self, profile: Profile, overhead_s: float = 0.0) -> Profile:
        """The profile as that of one of these ranks. overhead_s: of each task, for scheduling; their number stays."""
        factors = self._of_matrices(profile) if self.divides_matrices else self._of_batch(profile)
        seconds = [factor * (s + overhead_s) for factor, s in zip(factors, profile.seconds, strict=True)]
        return replace(profile, seconds=seconds)

    def _of_batch(self, profile: Profile) -> Sequence[float]:
        """Factors of the tasks' times. A rank's shard of the weights, and its part of the batch, are as much smaller as
        there are more ranks. Calls that send take time in proportion to their bytes."""
        sent = (1 - 1 / self.total) / (1 - 1 / self.source)
        factors = [
            sent if name.endswith(SEND) else self.part if phase == "update" else self.rows * self.part
            for name, phase in profile.kinds
        ]
        return [factors[kind] for kind in profile.kind]

    def _of_matrices(self, profile: Profile) -> Sequence[float]:
        """The same where a rank has all rows and a part of the matrices. Sums of the ranks' parts take time in
        proportion to their bytes, which are more by what is received from each further rank."""
        sent, factors = self.rows * (self.total - 1) / (self.source - 1), list[float]()
        for name, phase in profile.kinds:
            factor = self.rows if name.split("+")[0] in OF_ROWS else self.rows * self.part
            factors.append(sent if name.endswith(SEND) else self.part if phase == "update" else factor)
        found, tasks = [factors[kind] for kind in profile.kind], _by_op(profile)
        for name, folds in tasks.items():
            kind, is_fold, _ = name.partition(FOLD)
            if is_fold and kind != SOFTMAX:  # which is that of a rank's part of the logits
                for task, send in zip(folds, tasks[kind + SEND], strict=True):
                    more = (self.total - self.source) * profile.bytes[send]
                    found[task] = self.rows * (1 + more / profile.bytes[task])
        return found


def sent_kinds(profile: Profile) -> list[str]:
    """The kinds of exchanges, in program order."""
    return [name.removesuffix(SEND) for name in _by_op(profile) if name.endswith(SEND)]


def _by_op(profile: Profile) -> dict[str, list[int]]:
    """The tasks of each op, in program order."""
    tasks: dict[str, list[int]] = {}
    for task, kind in enumerate(profile.kind):
        tasks.setdefault(profile.kinds[kind][0], []).append(task)
    return tasks
