"""What ranks exchange that divide matrices: rows of each rank's own tensors, slice by slice. Data only."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gpt2core.ranks.layout import SHARES, Layout, Message, message
from gpt2core.spec.config import TrainConfig
from gpt2core.step import slicing
from gpt2core.step.grid import F32, Range
from gpt2core.step.parameters import Parameter
from gpt2core.step.rank import Way
from gpt2core.step.tensors import TensorSpec, plan_arena


class Rows(NamedTuple):
    """A kind of exchange: elements of a row, how often a step exchanges all rows, and which ones go to whom."""

    kind: str
    width: int
    times: int
    way: Way


def own_elements(mine: Sequence[TensorSpec], whole: Sequence[TensorSpec]) -> tuple[Range, ...]:
    """Elements of a rank's weights of which no other rank has any: those of tensors that one rank alone has in another
    shape."""
    places = zip(mine, whole, plan_arena(mine).offsets, strict=True)
    return tuple((at // F32, at // F32 + spec.size) for spec, one, at in places if spec.shape != one.shape)


@dataclass(frozen=True, kw_only=True)
class RowLayout(Layout):
    """One rank's messages. Buckets are those of layers that divide the batch. Exchanges of a kind have the same
    messages: those of one slice follow each other, since they write the same rows. config: whose batch is cut into
    slices; divided: elements of the weights' arena that no other rank has, or whose gradients this rank folds a part
    of."""

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
        own = [dataclasses.replace(each, spans=tuple(filter(self._is_divided, each.spans)), kept=None)
               for each in parameters]  # fmt: skip
        return [each for each in own if each.spans]

    def _is_divided(self, span: Range) -> bool:
        return any(first <= span[0] < last for first, last in self.divided)

    @functools.cached_property
    def slices(self) -> dict[Way, list[Range]]:
        """The rows of each slice: of all ranks' rows, or of this rank's."""
        every, own = (
            [(each.row0, each.row1) for each in slicing.cut(config)] for config in (self.config, self.config.batch_part)
        )
        return {"sum": every, "gather": own, "scatter": own}

    def leaving(self, way: Way, rows: Range, peer: int) -> Range:
        """Which rows of its tensor a rank sends to a peer with those of a slice."""
        return self._among(way, rows, peer if way == "scatter" else 0)

    def arriving(self, way: Way, rows: Range, peer: int) -> Range:
        """Where the peer's rows are received."""
        return self._among(way, rows, peer - (way != "gather" and peer > self.rank.number))

    def _among(self, way: Way, rows: Range, place: int) -> Range:
        shift = place * self.slices[way][-1][1]
        return shift + rows[0], shift + rows[1]

    @functools.cached_property
    def by_kind(self) -> dict[str, list[list[Message]]]:
        """Messages that are sent and received together: of the loss, of each slice for each kind, of the buckets, and
        of the gradients' norm if it is limited."""
        found, tag = {"loss": [self._shares(SHARES, 0)]}, 1
        for each in self.exchanged:
            slices = self.slices[each.way]
            found[each.kind] = [self._of_slice(each, rows, number) for number, rows in enumerate(slices, tag)]
            tag += len(slices)
        if self.buckets:
            found |= self._of_buckets(tag)
        if self.limited:
            found["norm"] = [self._shares(1, tag + 2 * len(self.buckets))]
        return found

    def _of_slice(self, each: Rows, rows: Range, tag: int) -> list[Message]:
        peers = self.rank.others
        return [
            *(message(1, _elements(each.width, self.arriving(each.way, rows, peer)), peer, tag) for peer in peers),
            *(message(0, _elements(each.width, self.leaving(each.way, rows, peer)), peer, tag) for peer in peers),
        ]

    def in_step(self, kind: str) -> list[list[Message]]:
        times = {each.kind: each.times for each in self.exchanged}
        return self.by_kind[kind] * times.get(kind, 1)

    def specs(self) -> list[TensorSpec]:
        groups = 1 + self.limited + sum(len(self.slices[each.way]) for each in self.exchanged)
        of_buckets = sum(len(group) for groups in self._of_buckets(0).values() for group in groups)
        return [
            *([TensorSpec("received", (self.rank.total * self.shard_elements,))] if self.buckets else []),
            *self._specs_of_all(2 * len(self.rank.others) * groups + of_buckets),
        ]


def _elements(width: int, rows: Range) -> Range:
    return width * rows[0], width * rows[1]
