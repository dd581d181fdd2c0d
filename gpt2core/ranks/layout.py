"""What the ranks of a run exchange: shards of the weights and of their gradients. Data only.

A bucket is one matrix of one layer with its bias, or another parameter. Each of its spans is cut into a shard for each
rank, which folds the gradients of its shard and updates it (ZeRO-1: Rajbhandari et al. 2020).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gpt2core.step.grid import F32, F64, Range
from gpt2core.step.parameters import Parameter
from gpt2core.step.rank import Rank
from gpt2core.step.slicing import BLOCK_ELEMENTS
from gpt2core.step.tensors import ALIGN, TensorSpec

LINE = ALIGN // F32  # elements; shards begin at multiples of it, counted from the span's begin
SHARES = 3  # of a rank: of the step's loss, of its accuracy, and whether it was asked to stop


class Message(NamedTuple):
    """One message between this rank and another one: elements of the array that is sent or received."""

    receives: int
    offset: int
    elements: int
    peer: int
    tag: int


class Piece(NamedTuple):
    """A span of a bucket: elements [begin, end) of the weights' and of the gradients' arena. `width`: elements of a
    shard, the last ones may be shorter; `received`: where rank 0's gradients of this rank's shard are received, and
    those of the other ranks behind them; `kept`: where a rank keeps the optimizer's state of its shard."""

    begin: int
    end: int
    width: int
    received: int
    kept: int

    def shard(self, rank: int) -> Range:
        """The elements that a rank updates."""
        return min(self.begin + rank * self.width, self.end), min(self.begin + (rank + 1) * self.width, self.end)

    def arriving(self, sender: int, receiver: int) -> Range:
        """Where a receiver has a sender's gradients of its shard, in elements of `received`."""
        first, last = self.shard(receiver)
        at = self.received + sender * self.width
        return at, at + last - first


class Bucket(NamedTuple):
    label: str
    pieces: tuple[Piece, ...]


@dataclass(frozen=True)
class Layout:
    """The buckets in the order in which their gradients become complete, and one rank's messages. `limited`: whether
    the norm of all gradients is."""

    rank: Rank
    buckets: tuple[Bucket, ...]
    limited: bool = False

    @property
    def counts(self) -> bool:
        """Whether this rank's loss is a part of the step's."""
        return True

    @property
    def kinds(self) -> tuple[str, ...]:
        """What is exchanged in a step."""
        return tuple(self.by_kind)

    @functools.cached_property
    def by_kind(self) -> dict[str, list[list[Message]]]:
        """Messages that are sent and received together, by what is exchanged: the loss, each bucket's gradients, each
        bucket's weights, and the gradients' norm if it is limited."""
        every = {"loss": [self._shares(SHARES, 0)], **self._of_buckets(1)}
        if self.limited:
            every["norm"] = [self._shares(1, 1 + 2 * len(self.buckets))]
        return every

    def _of_buckets(self, first: int) -> dict[str, list[list[Message]]]:
        """The messages of the buckets, with tags from `first` on."""
        gradients, weights, me = [], [], self.rank.number
        for tag, bucket in enumerate(self.buckets, first):
            to_all = [(peer, piece) for peer in self.rank.others for piece in bucket.pieces]
            gradients.append([
                *(message(1, piece.arriving(peer, me), peer, tag) for peer, piece in to_all),
                *(message(0, piece.shard(peer), peer, tag) for peer, piece in to_all),
            ])  # fmt: skip
            weights.append([
                *(message(1, piece.shard(peer), peer, tag + len(self.buckets)) for peer, piece in to_all),
                *(message(0, piece.shard(me), peer, tag + len(self.buckets)) for peer, piece in to_all),
            ])  # fmt: skip
        return {kind: [[message for message in group if message.elements] for group in groups]
                for kind, groups in (("gradients", gradients), ("weights", weights))}  # fmt: skip

    @property
    def groups(self) -> list[list[Message]]:
        """The groups of all kinds, one kind after the other."""
        return [group for groups in self.by_kind.values() for group in groups]

    def _shares(self, size: int, tag: int) -> list[Message]:
        """Messages by which each rank gets the other ones' `size` elements of an array."""
        me, others = self.rank.number, self.rank.others
        return [
            *(message(1, (size * peer, size * (peer + 1)), peer, tag) for peer in others),
            *(message(0, (size * me, size * (me + 1)), peer, tag) for peer in others),
        ]

    @property
    def messages(self) -> list[Message]:
        """All messages, group after group."""
        return [message for group in self.groups for message in group]

    def in_step(self, kind: str) -> list[list[Message]]:
        """The groups of a kind in the order in which a step exchanges them."""
        return self.by_kind[kind]

    def sent(self, kind: str, receives: int = 0) -> list[dict[int, int]]:
        """Bytes that each exchange of a kind in a step sends to each rank, or receives from it."""
        size = F64 if kind in ("loss", "norm") else F32
        found: list[dict[int, int]] = []
        for group in self.in_step(kind):
            found.append({})
            for each in group:
                if each.receives == receives:
                    found[-1][each.peer] = found[-1].get(each.peer, 0) + size * each.elements
        return found

    def bytes_of(self, kind: str) -> tuple[int, int]:
        """What a step's exchanges of this kind send and receive."""
        sent, received = (sum(sum(group.values()) for group in self.sent(kind, way)) for way in (0, 1))
        return sent, received

    def ranges(self, kind: str) -> list[Range]:
        """Numbers of the messages of each group of a kind."""
        every = itertools.pairwise(itertools.accumulate(map(len, self.groups), initial=0))
        kinds = [name for name, groups in self.by_kind.items() for _ in groups]
        return [numbers for name, numbers in zip(kinds, every, strict=True) if name == kind]

    @property
    def shard_elements(self) -> int:
        """Elements of the memory of a rank's shards, of which the last ones may be shorter."""
        return sum(piece.width for bucket in self.buckets for piece in bucket.pieces)

    def specs(self) -> list[TensorSpec]:
        """Tensors of the exchange."""
        parts = sum(1 for _ in self.mine())
        return [
            TensorSpec("received", (self.rank.total * self.shard_elements,)),
            *self._specs_of_all(len(self.messages)),
            *([TensorSpec("own_squares", (parts,), "float64")] if self.limited else []),
        ]

    def _specs_of_all(self, messages: int) -> list[TensorSpec]:
        return [
            TensorSpec("shares", (SHARES * self.rank.total,), "float64"), TensorSpec("requests", (messages,), "int64"),
            TensorSpec("exchanges", (1,), "int64"),
            *([TensorSpec("norm_shares", (self.rank.total,), "float64")] if self.limited else []),
        ]  # fmt: skip

    def counted(self, parameters: Sequence[Parameter]) -> Sequence[Parameter]:
        """Those of parameters whose gradients this rank adds to the norm of all ranks': by default all."""
        return parameters

    def mine(self) -> Iterator[tuple[str, tuple[tuple[Piece, Range], ...]]]:
        """This rank's shards in parts, each updated by one task: a label, and pieces with the elements in them."""
        for bucket in self.buckets:
            shards = [piece.shard(self.rank.number) for piece in bucket.pieces]
            count = -(-sum(last - first for first, last in shards) // BLOCK_ELEMENTS)
            cuts = [_cut(shard, count) for shard in shards]
            for number, parts in enumerate(zip(*cuts, strict=True)):
                yield f"{bucket.label} p{number}", tuple(zip(bucket.pieces, parts, strict=True))


def layout(
    parameters: Sequence[Parameter], rank: Rank, limited: bool = False, keeps_shards: bool = True
) -> Layout:
    """The layout for one rank. parameters: in the order in which their gradients become complete. limited: whether
    their norm is. keeps_shards: whether a rank has the optimizer's state of its shards alone; else that of a shard
    begins where the bucket does."""
    buckets, elements = [], 0
    for parameter in parameters:
        pieces = []
        for first, last in parameter.spans:
            width = -(-(last - first) // (rank.total * LINE)) * LINE
            kept = elements if keeps_shards else first
            pieces.append(Piece(first, last, width, rank.total * elements, kept))
            elements += width
        buckets.append(Bucket(parameter.label, tuple(pieces)))
    return Layout(rank, tuple(buckets), limited)


def message(receives: int, elements: Range, peer: int, tag: int) -> Message:
    return Message(receives, elements[0], elements[1] - elements[0], peer, tag)


def _cut(whole: Range, count: int) -> list[Range]:
    """`count` nearly equal parts, cut at multiples of LINE."""
    first, last = whole
    step = -(-(last - first) // (count * LINE)) * LINE if count else 0
    return [(min(first + i * step, last), min(first + (i + 1) * step, last)) for i in range(count)]
