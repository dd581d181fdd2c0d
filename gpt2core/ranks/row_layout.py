"""What ranks exchange that divide the matrices: rows of each rank's own tensors, slice by slice. Data only."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gpt2core.ranks.layout import SHARES, Layout, Message, message
from gpt2core.spec.config import TrainConfig
from gpt2core.step import slicing
from gpt2core.step.grid import Range
from gpt2core.step.parameters import Parameter
from gpt2core.step.tensors import TensorSpec


class Rows(NamedTuple):
    """A kind of exchange: elements of a row, and how often a step exchanges all rows."""

    kind: str
    width: int
    times: int


@dataclass(frozen=True, kw_only=True)
class RowLayout(Layout):
    """One rank's messages, without buckets. Exchanges of a kind have the same messages: those of one slice follow each
    other, since they write the same rows. config: whose batch is cut into slices; divided: elements of the weights'
    arena that no other rank has."""

    config: TrainConfig
    exchanged: tuple[Rows, ...]
    divided: tuple[Range, ...]

    @property
    def counts(self) -> bool:  # all ranks compute the whole loss
        return self.rank.number == 0

    def counted(self, parameters: Sequence[Parameter]) -> Sequence[Parameter]:
        """Rank 0 counts all that it has, the others what no other rank has."""
        if self.rank.number == 0:
            return parameters
        own = [dataclasses.replace(each, spans=tuple(filter(self._is_divided, each.spans))) for each in parameters]
        return [each for each in own if each.spans]

    def _is_divided(self, span: Range) -> bool:
        return any(first <= span[0] < last for first, last in self.divided)

    @functools.cached_property
    def slices(self) -> list[Range]:
        """The rows of each slice."""
        return [(each.row0, each.row1) for each in slicing.cut(self.config)]

    def others(self, rows: Range) -> list[Range]:
        """Where the other ranks' rows are received, in the order of Rank.others: rank after rank."""
        total, me = self.slices[-1][1], self.rank.number
        places = [peer - (peer > me) for peer in self.rank.others]
        return [(place * total + rows[0], place * total + rows[1]) for place in places]

    @functools.cached_property
    def by_kind(self) -> dict[str, list[list[Message]]]:
        """Messages that are sent and received together: of the loss, of each slice for each kind, and of the gradients'
        norm if it is limited."""
        found = {"loss": [self._shares(SHARES, 0)]}
        for number, each in enumerate(self.exchanged):
            first = 1 + number * len(self.slices)
            found[each.kind] = [self._of_slice(each.width, rows, tag) for tag, rows in enumerate(self.slices, first)]
        if self.limited:
            found["norm"] = [self._shares(1, 1 + len(self.exchanged) * len(self.slices))]
        return found

    def _of_slice(self, width: int, rows: Range, tag: int) -> list[Message]:
        peers = self.rank.others
        return [
            *(message(1, _elements(width, theirs), peer, tag)
              for peer, theirs in zip(peers, self.others(rows), strict=True)),
            *(message(0, _elements(width, rows), peer, tag) for peer in peers),
        ]  # fmt: skip

    def in_step(self, kind: str) -> list[list[Message]]:
        times = {each.kind: each.times for each in self.exchanged}
        return self.by_kind[kind] * times.get(kind, 1)

    def specs(self) -> list[TensorSpec]:
        groups = 1 + self.limited + len(self.exchanged) * slicing.count(self.config)
        return self._specs_of_all(2 * len(self.rank.others) * groups)


def _elements(width: int, rows: Range) -> Range:
    return width * rows[0], width * rows[1]
