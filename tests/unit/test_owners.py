"""Each part of memory is first touched by the thread that owns it."""

from __future__ import annotations

import itertools

import pytest

from gpt2core.networks import memory, program
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.models import model_from
from gpt2core.step import slicing
from gpt2core.step.owners import owners


def plans_and_owners(threads: int, **settings: object):
    config = slicing.resolve(
        TrainConfig(
            model=model_from("tiny"),
            batch=8,
            batch_slice=1,
            threads=threads,
            allow_oversubscription=True,
            **settings,  # type: ignore[arg-type]
        )
    )
    plans = memory.plan(config)
    return plans, owners(program.build(config), plans, threads)


def at(plans, name):
    """The location of a tensor: (arena, offset, spec)."""
    return next(
        (arena, offset, spec)
        for arena, plan in plans.items()
        for spec, offset in zip(plan.specs, plan.offsets, strict=True)
        if spec.name == name
    )


@pytest.mark.parametrize("threads", [1, 2, 3, 16])
@pytest.mark.parametrize("fusion", ["none", "all"])
def test_every_byte_has_one_owner(threads: int, fusion: str) -> None:
    plans, found = plans_and_owners(threads, fusion=fusion)
    for arena, plan in plans.items():
        spans = sorted(span[1:] for mine in found for span in mine if span.arena == arena)
        assert all(before[1] == after[0] for before, after in itertools.pairwise(spans))
        assert not spans or (spans[0][0], spans[-1][1]) == (0, plan.bytes)


@pytest.mark.parametrize("name", ["words", "strips", "gradient"])
def test_a_threads_own_row_is_its_own(name: str) -> None:
    threads = 16
    plans, found = plans_and_owners(threads)
    arena, offset, spec = at(plans, name)
    row = spec.bytes // threads
    for thread, mine in enumerate(found):
        begin, end = offset + thread * row, offset + (thread + 1) * row
        assert any(span.arena == arena and span.begin <= begin and end <= span.end for span in mine), thread


def test_rows_of_a_slice_belong_to_the_thread_that_computes_it() -> None:
    """8 slices on 4 threads: two each, contiguous."""
    plans, found = plans_and_owners(4)
    arena, offset, spec = at(plans, "qkv[0]")
    layer = spec.bytes
    for thread, mine in enumerate(found):
        begin, end = offset + layer * thread // 4, offset + layer * (thread + 1) // 4
        assert any(span.arena == arena and span.begin <= begin and end <= span.end for span in mine), thread
