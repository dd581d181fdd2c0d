"""Memory of a run: its exact split, its growth with batch and sequence, and its share of the process's peak."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from taskloom.analysis.growth import Growth
from taskloom.analysis.variants import Variant

PEAK = "peak_rss"
Sizes = Mapping[str, int]
SizesAt = Callable[[int, int], Sizes]  # batch, seq -> bytes of each arena


@dataclass(frozen=True)
class SizedShape:
    """Memory that a shape needs, without running it."""

    batch: int
    seq: int
    bytes: dict[str, int]
    total_bytes: int


@dataclass(frozen=True)
class Memory:
    """Memory of one configuration. planned_bytes: by the formula; measured_bytes: allocated arenas; per_sequence and
    per_token: bytes for one more sequence, or one more token in each. peak_rss_bytes: the highest of all runs that
    compiled nothing; peak_compiled: whether every run compiled kernels, so that the peak contains the compiler; null
    for results that do not say so; compiled_runs: number of runs that compiled; arenas_share: share of the arenas in
    the peak; resident_bytes: parts of that run's memory, arenas included; explained: their sum / peak RSS, null for
    results without them."""

    planned_bytes: dict[str, int]
    measured_bytes: dict[str, int]
    exact: bool
    peak_rss_bytes: int | None
    arenas_share: float | None
    resident_bytes: dict[str, int]
    explained: float | None
    per_sequence_bytes: dict[str, int]
    per_token_bytes: dict[str, int]
    with_batch: list[SizedShape]
    with_seq: list[SizedShape]
    peak_compiled: bool | None = None
    compiled_runs: int = 0


@dataclass(frozen=True)
class MemoryRow:
    """Memory of one variant."""

    variant: Variant
    memory: Memory


@dataclass(frozen=True)
class MemoryTable:
    """The memory of every variant of an experiment, and that of training beside inference for the model of the first.
    """

    experiment_id: int
    rows: list[MemoryRow]
    growth: list[Growth] = field(default_factory=list)


def memory(
    measured: Sequence[Sizes],
    resident: Sequence[Sizes],
    compiled: Sequence[int | None],
    batch: int,
    seq: int,
    context: int,
    sizes_at: SizesAt,
    doublings: int = 4,
    most_batch: int = 1 << 40,
) -> Memory:
    """Memory of equally configured runs, from `memory_bytes`, `resident_bytes` and `compiled`. A process that compiles
    loads the compiler, so its peak is shown only if no other is known. context, most_batch: the largest sizes that
    sizes_at accepts. Raises ValueError for no run."""
    if not measured:
        raise ValueError("no run")
    planned = dict(sizes_at(batch, seq))
    arenas = {name: size for name, size in measured[0].items() if name != PEAK}
    least = min(map(_compiler, compiled))
    alike = [run for run, count in enumerate(compiled) if _compiler(count) == least]
    highest = max(alike, key=lambda run: measured[run].get(PEAK, 0))
    peak, pieces = measured[highest].get(PEAK) or None, dict(resident[highest])
    batches = [batch << i for i in range(doublings + 1) if batch << i <= most_batch]
    seqs = [seq << i for i in range(doublings + 1) if seq << i <= context]
    return Memory(
        planned_bytes=planned,
        measured_bytes=arenas,
        exact=all({k: v for k, v in sizes.items() if k != PEAK} == planned for sizes in measured),
        peak_rss_bytes=peak,
        peak_compiled=None if compiled[highest] is None else bool(compiled[highest]),
        compiled_runs=sum(bool(count) for count in compiled),
        arenas_share=None if peak is None else sum(arenas.values()) / peak,
        resident_bytes=pieces,
        explained=None if peak is None or not pieces else sum(pieces.values()) / peak,
        per_sequence_bytes=_more(planned, sizes_at(batch + 1, seq)) if batch < most_batch else {},
        per_token_bytes=_more(planned, sizes_at(batch, seq + 1)) if seq < context else {},
        with_batch=[_sized(each, seq, sizes_at) for each in batches],
        with_seq=[_sized(batch, each, sizes_at) for each in seqs],
    )


def _compiler(compiled: int | None) -> int:
    """Order of processes by what their peaks contain: no compiler, perhaps one, one."""
    return 1 if compiled is None else 2 * bool(compiled)


def _more(before: Sizes, after: Sizes) -> dict[str, int]:
    return {name: after[name] - size for name, size in before.items()}


def _sized(batch: int, seq: int, sizes_at: SizesAt) -> SizedShape:
    sizes = dict(sizes_at(batch, seq))
    return SizedShape(batch, seq, sizes, sum(sizes.values()))
