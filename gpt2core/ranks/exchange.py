"""Ops by which the ranks of a run share a step's loss, fold their gradients, and collect the weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from gpt2core.compile.jit import kernel, runtime
from gpt2core.ranks import messages
from gpt2core.ranks.layout import SHARES, Layout
from gpt2core.ranks.row_layout import RowLayout
from gpt2core.step.builder import Builder
from gpt2core.step.control import ASKED, STOP
from gpt2core.step.grid import F32, F64, ONE_TILE, Grid, Range
from gpt2core.step.ops import Arena, Outside, Own, Read, Reduce, Tensor, Update, Use, Write
from gpt2core.step.parameters import BOTH, GRADIENTS, WEIGHTS, Parameter, grid
from gpt2core.step.rank import Way
from gpt2core.step.signature import Float64s, Int64s, Scalar, Step, TileInt, Vector

NORM_SHARES = Tensor("norm_shares")
RECEIVED, SHARED, CONTROL, LOSSES = Tensor("received"), Tensor("shares"), Tensor("control"), Tensor("losses")
ACCURACIES = Tensor("accuracies")  # of networks for classification
AddUpdate = Callable[[Builder, Sequence[Parameter], int | None, Arena | Own], None]


@kernel
def put_shares(
    shares: Float64s, losses: Float64s, accuracies: Float64s, control: Int64s, step: Step, rank: Scalar, counts: Scalar
):  # fmt: skip
    """Write what this rank tells the others: its share of the step's loss and accuracy, 0 unless `counts` is set, and
    whether it was asked to stop.

    Writes:   shares (SHARES * ranks,) float64, this rank's
    Reads:    losses, accuracies (steps,) float64, or (0,) for none; control
    """
    at = rank * SHARES
    shares[at] = losses[step] if counts else 0.0
    shares[at + 1] = accuracies[step] if counts and accuracies.shape[0] else 0.0
    shares[at + 2] = control[ASKED]


@kernel
def fold_shares(
    losses: Float64s, accuracies: Float64s, control: Int64s, shares: Float64s, step: Step, ranks: Scalar
):  # fmt: skip
    """Add the ranks' shares of the loss and the accuracy in their order. All ranks stop after the same step: if one was
    asked to, or the loss is not finite.

    Writes:   losses, accuracies (steps,) float64, element `step` =, or (0,) for none; control, element STOP
    Reads:    shares (SHARES * ranks,) float64
    """
    loss = in_order(shares, 0, ranks)
    losses[step] = loss
    if accuracies.shape[0]:
        accuracies[step] = in_order(shares, 1, ranks)
    if in_order(shares, 2, ranks) > 0 or not math.isfinite(loss):
        control[STOP] = 1


@runtime
def in_order(shares, number, ranks):
    """The sum of the ranks' shares of this number. Not a kernel, which may reorder it."""
    total = shares[number]
    for rank in range(1, ranks):
        total += shares[rank * SHARES + number]
    return total


@kernel
def put_squares(shares: Float64s, squares: Float64s, slot: TileInt, first: TileInt, last: TileInt):
    """Sum a rank's parts of the square of the gradients' norm, in their order.

    Writes:   shares (ranks,) float64, element `slot` =
    Reads:    squares (any,) float64, elements [first, last)
    """
    shares[slot] = sum_of(squares, first, last)


@runtime
def sum_of(numbers, first, last):
    """The sum of elements in their order. Not a kernel, which may reorder it."""
    total = 0.0
    for number in range(first, last):
        total += numbers[number]
    return total


@kernel
def fold_span(gradients, received, rank, ranks, begin, end, at, width):
    """Fold the elements [begin, end): `at` is where rank 0's are received, those of the next one are `width` behind."""
    count = end - begin
    total = gradients[begin:end]
    if rank > 0:  # the ranks before this one, in the first one's place
        before = received[at : at + count]
        for other in range(1, rank):
            theirs = received[at + other * width : at + other * width + count]
            for i in range(count):
                before[i] += theirs[i]
        for i in range(count):
            total[i] = before[i] + total[i]
    for other in range(rank + 1, ranks):
        theirs = received[at + other * width : at + other * width + count]
        for i in range(count):
            total[i] += theirs[i]


@kernel
def fold(
    gradients: Vector, received: Vector, rank: Scalar, ranks: Scalar, a0: TileInt, a1: TileInt, b0: TileInt,
    b1: TileInt, from_a: TileInt, from_b: TileInt, width_a: TileInt, width_b: TileInt,
):  # fmt: skip
    """Add the ranks' gradients of the elements [a0, a1) and [b0, b1), either of which may be empty, in rank order.

    Writes:   gradients (any,): on entry this rank's, on exit the sum; received (any,): scratch
    Reads:    received: the other ranks'
    Maths:    ((g0 + g1) + g2) + ...
    Tiles:    disjoint ranges are independent
    Cost:     R - 1 flop, 4 (R + 1) bytes per element
    """
    fold_span(gradients, received, rank, ranks, a0, a1, from_a, width_a)
    fold_span(gradients, received, rank, ranks, b0, b1, from_b, width_b)


class Exchange:
    """Adds the ops to a step. in_turn: no task waits for messages before all that are sent together are on their way.
    Schedulers need this whose threads are held by a waiting task: else two ranks might wait for each other.
    """

    squares = Tensor("own_squares")  # of the gradients that this rank adds to the norm, part by part

    def __init__(self, layout: Layout, in_turn: bool) -> None:
        self.layout, self.in_turn = layout, in_turn

    def losses(self, step: Builder) -> None:
        """Add the exchange of a step's loss and accuracy, after every micro-batch's have been added."""
        accuracies = ACCURACIES if step.has(ACCURACIES) else None
        rank, ranks = self.layout.rank
        step.op(
            "loss_share", "loss", put_shares, ONE_TILE.with_columns(at0=[rank * SHARES], at1=[(rank + 1) * SHARES]),
            [(0, 8 * SHARES)],
            shares=Write(SHARED, "at0:at1"), losses=Read(LOSSES), accuracies=accuracies and Read(accuracies),
            control=Reduce(CONTROL), rank=rank, counts=int(self.layout.counts),
        )  # fmt: skip
        others = [_elements(SHARES, peer) for peer in self.layout.rank.others]
        together = Grid(("",), {}, {"sent": ([_elements(SHARES, rank)],), "arriving": (others,)})
        self._messages(step, "loss", "loss", together, SHARED, SHARED)
        step.op(
            "loss_fold", "loss", fold_shares, ONE_TILE, [(ranks, 8 * SHARES * ranks)],
            losses=Update(LOSSES), accuracies=accuracies and Update(accuracies), control=Reduce(CONTROL),
            shares=Read(SHARED), ranks=ranks,
        )  # fmt: skip

    def update(self, step: Builder, update: AddUpdate, unfolded: Sequence[Parameter]) -> None:
        """Add the exchange of gradients, the update of this rank's shards and of the parameters whose gradients ranks
        do not fold, and the exchange of weights."""
        buckets, rank, others = self.layout.buckets, self.layout.rank.number, self.layout.rank.others
        labels = tuple(bucket.label for bucket in buckets)
        mine = tuple([piece.shard(rank) for piece in bucket.pieces] for bucket in buckets)
        theirs = tuple([piece.shard(peer) for peer in others for piece in bucket.pieces] for bucket in buckets)
        arriving = tuple(
            [piece.arriving(peer, rank) for peer in others for piece in bucket.pieces] for bucket in buckets
        )
        together = Grid(labels, {}, {"sent": theirs, "arriving": arriving})
        self._messages(step, "gradients", "update", together, GRADIENTS, RECEIVED)
        self._fold(step)
        update(step, [*self._own()[0], *unfolded], None, GRADIENTS)
        # Else the norm of what all ranks have folded comes between, or other gradients are updated by the same op.
        if not (self.layout.limited or unfolded):
            step.fuse(2)
        together = Grid(labels, {}, {"sent": mine, "arriving": theirs})
        self._messages(step, "weights", "update", together, WEIGHTS, WEIGHTS)

    def counted(self, parameters: Sequence[Parameter]) -> Sequence[Parameter]:
        """Those of parameters whose gradients this rank adds to the norm of all ranks'."""
        return self.layout.counted(parameters)

    def norm(self, step: Builder, count: int) -> Tensor:
        """Add the exchange of the ranks' sums of squares, of which this one has `count`; the tensor of all sums, in
        rank order."""
        rank = self.layout.rank.number
        add_norm_shares(step, self.squares, [(rank, 0, count)])
        others = [_elements(1, peer) for peer in self.layout.rank.others]
        together = Grid(("",), {}, {"sent": ([_elements(1, rank)],), "arriving": (others,)})
        self._messages(step, "norm", "update", together, NORM_SHARES, NORM_SHARES)
        return NORM_SHARES

    def _own(self) -> tuple[list[Parameter], dict[str, list[int]], list[list[Range]]]:
        """The parts of this rank's shards, where the gradients of each are received, and all ranges of them."""
        parameters: list[Parameter] = []
        columns: dict[str, list[int]] = {name: [] for name in ("from_a", "from_b", "width_a", "width_b")}
        parts: list[list[Range]] = []
        for label, found in self.layout.mine():
            ranges: list[Range] = []
            kept: list[int] = []
            for name, (piece, (first, last)) in zip("ab", found, strict=False):
                offset = first - piece.shard(self.layout.rank.number)[0]
                kept.append(piece.kept + offset)
                at = piece.received + offset
                columns[f"from_{name}"].append(at)
                columns[f"width_{name}"].append(piece.width)
                ranges += [(at + peer * piece.width, at + peer * piece.width + last - first)
                           for peer in range(self.layout.rank.total)]  # fmt: skip
            for name in "ab"[len(found) :]:
                columns[f"from_{name}"].append(0)
                columns[f"width_{name}"].append(0)
            parameters.append(Parameter(label, tuple(part for _, part in found), 0, tuple(kept)))
            parts.append(ranges)
        return parameters, columns, parts

    def _fold(self, step: Builder) -> None:
        parameters, columns, parts = self._own()
        tiles = grid(parameters, GRADIENTS).with_columns(**columns)
        tiles = Grid(tiles.labels, tiles.columns, {"parts": tuple(parts)})
        rank, ranks = self.layout.rank
        step.op(
            "fold", "update", fold, tiles, [((ranks - 1) * p.size, F32 * (ranks + 1) * p.size) for p in parameters],
            gradients=Update(GRADIENTS, BOTH), received=Update(RECEIVED, "parts"), rank=rank, ranks=ranks,
        )  # fmt: skip

    def _messages(
        self, step: Builder, what: str, phase: str, tiles: Grid, source: Tensor | Arena, target: Tensor | Arena,
        layer: int | None = None, width: int = 1,
    ) -> None:  # fmt: skip
        """Add messages, a tile for each group of them, and the tasks that are complete when they have arrived. width:
        elements of a row."""
        first, last = zip(*self.layout.ranges(what), strict=True)
        tiles = tiles.with_columns(first=first, last=last)
        exchanges, requests = Tensor("exchanges"), Tensor("requests")
        sizes = [width * sum(end - begin for begin, end in sent) for sent in tiles.sets["sent"]]
        turn: tuple[Use | None, Use | None] = (Reduce(exchanges), Read(exchanges)) if self.in_turn else (None, None)
        kinds = self.layout.kinds
        noted: dict[str, Any] = {"traffic": Outside("traffic"), "kind": kinds.index(what), "kinds": len(kinds)}
        step.op(
            f"{what}_send", phase, messages.send, tiles, [(0, F32 * size) for size in sizes], layer,
            target=Write(target, "arriving"), source=Read(source, "sent"), requests=Write(requests, "first:last"),
            exchanges=turn[0], messages=Outside("messages"), mpi=Outside("mpi"), **noted,
        )  # fmt: skip
        step.op(
            f"{what}_arrived", phase, messages.wait, tiles, [(0, F32 * size) for size in sizes], layer,
            target=Update(target, "arriving"), source=Read(source, "sent"), requests=Update(requests, "first:last"),
            exchanges=turn[1], mpi=Outside("mpi"), **noted,
        )  # fmt: skip
        step.complete_when(messages.arrived)


class RowExchange(Exchange):
    """Adds the exchanges of ranks that divide matrices (step.builder.Rows)."""

    layout: RowLayout
    squares = Tensor("squares")

    def rows(
        self, step: Builder, name: str, phase: str, layer: int | None, own: Tensor, others: Tensor, way: Way = "sum", /
    ) -> None:
        slices, peers = self.layout.slices[way], self.layout.rank.others
        sent = tuple(sorted({self.layout.leaving(way, rows, peer) for peer in peers}) for rows in slices)
        arriving = tuple([self.layout.arriving(way, rows, peer) for peer in peers] for rows in slices)
        labels = tuple(f"s{number}" for number in range(len(slices)))
        together = Grid(labels, {}, {"sent": sent, "arriving": arriving})
        self._messages(step, name, phase, together, own, others, layer, step.shape(own)[1])


def add_norm_shares(step: Builder, squares: Tensor, ranks: Sequence[tuple[int, int, int]]) -> None:
    """Add the sums of ranks' squares: (rank, first, last), a tile for each."""
    slot, first, last = zip(*ranks, strict=True)
    step.op(
        "norm_share", "update", put_squares,
        Grid(("",) * len(ranks)).with_columns(slot=slot, first=first, last=last),
        [(end - begin, F64 * (end - begin)) for _, begin, end in ranks],
        shares=Write(NORM_SHARES, "slot"), squares=Read(squares, "first:last"),
    )  # fmt: skip


def _elements(size: int, number: int) -> Range:
    return number * size, (number + 1) * size
