"""Places of tensors in an arena: tensors share memory if one is last used before the other is first used.

Standard library only: a server places tensors as a trainer does. The lives follow from the program (step/sketch.py).
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gpt2core.step.tensors import ALIGN

LONG = 1 << 40  # more ops than a step has


class Need(NamedTuple):
    """Memory that is needed from op number `first` to op number `last`, both included."""

    rows: int
    row_bytes: int
    first: int
    last: int

    @property
    def bytes(self) -> int:
        return -(-self.rows * self.row_bytes // ALIGN) * ALIGN


@dataclass(frozen=True)
class Policy:
    """What may share memory, and how far apart its uses are: memory is spent on overlap (docs/decisions/0033).

    alike: only what has equally many rows of equally many bytes. So a tile replaces the rows of the same tile, and
    tiles of other rows need not wait for it. The place that has been free for the longest time is taken.
    spare: places of each such kind beside those that are needed; at least two make a ring.
    """

    alike: bool = True
    spare: int = 0


def place(needs: Sequence[Need], policy: Policy) -> tuple[list[int], int]:
    """Offset of each need in one arena, a multiple of ALIGN, and the arena's bytes."""
    return _in_rings(needs, policy.spare) if policy.alike else _first_fit(needs)


def _in_rings(needs: Sequence[Need], spare: int) -> tuple[list[int], int]:
    """Needs of one kind take turns in as many places as overlap at any time, and the spare ones."""
    kinds: dict[tuple[int, int], list[int]] = defaultdict(list)
    for number, need in enumerate(needs):
        kinds[need.rows, need.row_bytes].append(number)
    offsets, end = [0] * len(needs), 0
    for numbers in kinds.values():
        numbers.sort(key=lambda number: needs[number].first)
        size = needs[numbers[0]].bytes
        count = min(_most_at_once([needs[number] for number in numbers]) + spare, len(numbers))
        since = _take_turns([needs[number] for number in numbers], [0] * count)[1]
        for number, i in zip(numbers, _take_turns([needs[number] for number in numbers], since)[0], strict=True):
            offsets[number] = end + i * size
        end += count * size
    return offsets, end


def _take_turns(needs: Sequence[Need], since: Sequence[int]) -> tuple[list[int], list[int]]:
    """Place of each need, the one that has been free for the longest time, and the last use of each place. `since`: its
    last use in the step before, so that the first needs take what that step no longer used at its end."""
    free = sorted((last - LONG, i) for i, last in enumerate(since))  # a heap
    taken: list[tuple[int, int]] = []  # a heap: until when, and the place
    found, last_use = [], list(since)
    for need in needs:
        while taken and taken[0][0] < need.first:
            heapq.heappush(free, heapq.heappop(taken))
        _, i = heapq.heappop(free)
        heapq.heappush(taken, (need.last, i))
        found.append(i)
        last_use[i] = need.last
    return found, last_use


def _most_at_once(needs: Sequence[Need]) -> int:
    """The largest number of needs at any time; they begin in order."""
    ends: list[int] = []
    most = 0
    for need in needs:
        while ends and ends[0] < need.first:
            heapq.heappop(ends)
        heapq.heappush(ends, need.last)
        most = max(most, len(ends))
    return most


def _first_fit(needs: Sequence[Need]) -> tuple[list[int], int]:
    """The largest first, each at the lowest offset where nothing of its time lies."""
    offsets = [0] * len(needs)
    done: list[int] = []
    for number in sorted(range(len(needs)), key=lambda number: (-needs[number].bytes, number)):
        mine = needs[number]
        beside = sorted((offsets[i], needs[i].bytes) for i in done
                        if needs[i].first <= mine.last and mine.first <= needs[i].last)  # fmt: skip
        at = 0
        for offset, size in beside:
            if at + mine.bytes <= offset:
                break
            at = max(at, offset + size)
        offsets[number] = at
        done.append(number)
    return offsets, max((offset + need.bytes for offset, need in zip(offsets, needs, strict=True)), default=0)
