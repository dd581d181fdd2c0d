"""Answers of a workload in words, made from its typed values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpt2core.spec.wording import counted, enumerated, seconds

if TYPE_CHECKING:
    from taskloom.analysis.workload import WorkNetwork

MODES = {"train": "Training", "infer": "Inference"}


def answers(of: WorkNetwork) -> list[str]:
    """One sentence each: what is memory-bound, which scheduler is faster, what inference needs, what data cost."""
    return [*_bounds(of), *_schedulers(of), *_inference(of), *_data(of)]


def _where(scheduler: str, threads: int) -> str:
    return f"{scheduler}, {counted(threads, 'thread')}"


def _bounds(of: WorkNetwork) -> Iterator[str]:
    for row in (of.rows[place] for place in of.typical):
        name = MODES.get(row.mode, row.mode)
        where = _where(row.variant.scheduler, row.variant.threads)
        op = row.ops[0] if row.ops else None
        costly = "" if op is None else f" Its costliest op is {op.op} ({op.phase}), {op.share:.0%} of the ops' time."
        judged = [phase for phase in row.phases if phase.memory_bound is not None]
        if not judged:
            reasons = "; ".join(row.missing) or "no op was timed"
            yield f"It is unknown whether {name.lower()} is memory-bound ({where}): {reasons}.{costly}"
            continue
        words = {"yes": "memory-bound", "partly": "partly memory-bound", "no": "not memory-bound"}
        parts = [f"{enumerated(phases)} {'is' if len(phases) == 1 else 'are'} {words[answer]}"
                for answer in words if (phases := [p.phase for p in judged if p.memory_bound == answer])]  # fmt: skip
        yield f"{name} ({where}): {'; '.join(parts)}.{costly}"


def _schedulers(of: WorkNetwork) -> Iterator[str]:
    for row in of.schedulers:
        yield f"{MODES.get(row.mode, row.mode)}: {row.sentence}"


def _inference(of: WorkNetwork) -> Iterator[str]:
    if not of.modes:
        return
    most = max(reversed(of.modes), key=lambda each: (each.threads, -each.batch))
    peak = "" if most.peak is None else f", and its process's peak is {most.peak:.0%}"
    yield (
        f"A step of inference ({_where(most.scheduler, most.threads)}, batch {most.batch}) takes {most.time:.0%} of "
        f"the time of a training step (ratio of medians, not tested); its arenas have {most.arenas:.0%} of the "
        f"size{peak}."
    )


def _data(of: WorkNetwork) -> Iterator[str]:
    for row in of.data:
        yield (
            f"With real data ({row.real}) a training step ({_where(row.scheduler, row.threads)}) takes "
            f"{row.time:.3f} times as long as with generated data (ratio of medians, not tested); reading takes "
            f"{seconds(row.real_data_s)} against {seconds(row.generated_data_s)}."
        )
