"""Estimated durations of planned runs, from the node's time that finished runs took.

A run takes a fixed time (delivery of the result before it, start, planning, compiling, preparing, end) and a time per
step. The wait for a run in an empty queue is no part of it. Medians are over the latest runs of the same shape.
Compiled kernels are kept, so the fewest seconds of compiling count. A shape that has not run is guessed from the run
whose memory is nearest, by memory and threads on each node, or from constants.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any, Literal

from sqlalchemy import Row, Select, case, select
from sqlalchemy.orm import Session

from taskloom.server.queue.attempts.node_time import COLUMNS
from taskloom.server.queue.experiments.variants import Variant
from taskloom.server.queue.tables.runs import Run

Basis = Literal["same-shape", "guess"]
CHUNK = 500  # shapes per query
LATEST = 30  # runs of a shape
SEARCHED = 4 * LATEST  # timed runs of a shape, for those that took all their steps: a goal may end a run before
OTHERS = 200  # latest runs of any shape
STEPS, COMPILING, WAITING = ("warmup_s", "timed_s"), "compiling_s", "claiming_s"
FIXED = tuple(name for name in COLUMNS if name not in (*STEPS, COMPILING, WAITING))
TIMED, STOP_AT = Run.median_step_s.is_not(None), Run.spec["stop_at"].as_string()
NOMINAL_FIXED_S, NOMINAL_STEP_S = 2.0, 3e-9  # of a run; of a step, per byte of memory, on one thread


@dataclass(frozen=True)
class Took:
    """Times of a finished run, or medians of several, in seconds."""

    fixed_s: float
    compiling_s: float
    step_s: float

    def of(self, steps: int) -> float:
        """Seconds of a run of so many steps."""
        return self.fixed_s + self.compiling_s + self.step_s * steps


@dataclass(frozen=True)
class Estimate:
    """Seconds of a run of each variant, in their order. basis: same-shape if every shape has run."""

    of_variants: list[float]
    basis: Basis


def estimate(session: Session, variants: Sequence[Variant], check: Callable[[], None] = lambda: None) -> Estimate:
    """Estimated durations of a run of each variant. check: called between queries; may raise."""
    known = _known(session, {variant.shape for variant in variants}, check)
    basis: Basis = "same-shape" if all(variant.shape in known for variant in variants) else "guess"
    others = [] if basis == "same-shape" else _others(session)
    times = [known.get(variant.shape) or _guess(variant, others) for variant in variants]
    seconds = [took.of(variant.config.steps) for took, variant in zip(times, variants, strict=True)]
    return Estimate(seconds, basis)


def mean_s(session: Session, runs: Sequence[tuple[str, int]]) -> float | None:
    """Mean seconds of runs with these shapes and numbers of steps. None: a shape has not run, or there are no runs."""
    known = _known(session, {shape for shape, _ in runs}, lambda: None)
    if not runs or any(shape not in known for shape, _ in runs):
        return None
    return fmean(known[shape].of(steps) for shape, steps in runs)


def _columns() -> list[Any]:
    return [Run.started_at, Run.finished_at, Run.median_step_s, Run.spec["steps"].as_integer().label("steps"),
            *(column.label(name) for name, column in COLUMNS.items())]  # fmt: skip


def _known(session: Session, shapes: Collection[str], check: Callable[[], None]) -> dict[str, Took]:
    """Median times of the shapes that have run. A shape's latest runs are read from the end of its index, since it may
    have run 50,000 times. PostgreSQL reads all of them if it is to test their goals."""
    known: dict[str, Took] = {}
    listed = list(shapes)
    for first in range(0, len(listed), CHUNK):
        found = select(Run.shape).where(Run.shape.in_(listed[first : first + CHUNK])).distinct()
        for shape in session.scalars(found).all():
            check()
            of_shape = select(STOP_AT.label("stop_at"), *_columns()).where(Run.shape == shape, TIMED)
            newest = session.execute(of_shape.order_by(Run.id.desc()).limit(SEARCHED))
            if times := [_took(row) for row in newest if row.stop_at is None][:LATEST]:
                known[shape] = _medians(times)
    return known


def _medians(times: Sequence[Took]) -> Took:
    return Took(
        median(took.fixed_s for took in times),
        min(took.compiling_s for took in times),
        median(took.step_s for took in times),
    )


def _took(row: Row[Any]) -> Took:
    """Times of a run. Without parts of the node's time, those between its start and end count."""
    if row.timed_s is None:
        passed_s = (row.finished_at or 0.0) - (row.started_at or 0.0) - row.steps * row.median_step_s
        return Took(max(0.0, passed_s) if row.finished_at and row.started_at else 0.0, 0.0, row.median_step_s)
    parts = row._mapping
    steps_s = sum(parts[name] or 0.0 for name in STEPS)
    return Took(sum(parts[name] or 0.0 for name in FIXED), parts[COMPILING] or 0.0, steps_s / max(1, row.steps))


def _others(session: Session) -> list[tuple[Took, int, int]]:
    """Times of the latest runs, and their memory in bytes and threads on each node."""
    threads = case((Run.spec["ranks"].as_integer() > 1, Run.cores_needed), else_=Run.spec["threads"].as_integer())
    latest: Select[Any] = (
        select(Run.memory_needed_bytes, threads.label("threads"), *_columns())
        .where(TIMED, STOP_AT.is_(None))
        .order_by(Run.id.desc())
        .limit(OTHERS)
    )
    return [(_took(row), row.memory_needed_bytes, row.threads) for row in session.execute(latest)]


def _guess(variant: Variant, others: Sequence[tuple[Took, int, int]]) -> Took:
    threads, memory = variant.config.total_threads // variant.nodes, max(1, variant.memory_bytes)
    if not others:
        return Took(NOMINAL_FIXED_S, 0.0, NOMINAL_STEP_S * memory / threads)
    took, its_memory, its_threads = min(others, key=lambda other: abs(math.log(max(1, other[1]) / memory)))
    compiling_s = min(other.compiling_s for other, _, _ in others)
    return Took(took.fixed_s, compiling_s, took.step_s * memory / max(1, its_memory) * its_threads / threads)
