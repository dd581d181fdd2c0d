"""The ranks of a run: the processes that share a step's batch."""

from __future__ import annotations

from typing import Literal, NamedTuple

# What ranks exchange of rows. sum: each sends its part of every row, and gets those of the others, rank after rank.
# gather: each sends its own rows of the batch, and gets the others' where they lie among the rows of all. scatter: each
# sends its parts of the others' rows, each rank's to it, and gets their parts of its own ones, rank after rank.
Way = Literal["sum", "gather", "scatter"]


class Rank(NamedTuple):
    """One of the `total` ranks of a run."""

    number: int = 0
    total: int = 1

    @property
    def others(self) -> list[int]:
        """The other ranks, nearest above first, so that not all ranks send to the same one at once."""
        return [(self.number + distance) % self.total for distance in range(1, self.total)]


class Place(NamedTuple):
    """Where a rank runs. on_node: number of ranks on its node; sharing: the rank among those that may use the same
    cores of the node."""

    on_node: int = 1
    sharing: Rank = Rank()
