"""The ranks of a run: the processes that share a step's batch."""

from __future__ import annotations

from typing import NamedTuple


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
