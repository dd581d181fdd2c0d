"""A start plans once: slices, places of tensors, program and graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from gpt2core.networks import memory, program
from gpt2core.run import prepare, proofs
from gpt2core.run.train import train
from gpt2core.spec.config import TrainConfig
from gpt2core.step import slicing
from gpt2core.step.ops import Product
from tests.support.networks import generating
from tests.support.present import present

MADE_ONCE = [
    (slicing, "resolve"), (prepare, "plan_memory"), (memory, "arena"), (program, "build"), (proofs, "proven"),
]  # fmt: skip


def test_a_start_decides_and_makes_everything_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: Counter[str] = Counter()

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            made[name] += 1
            return function(*given)

        return call

    for module, name in MADE_ONCE:
        monkeypatch.setattr(module, name, counted(name, getattr(module, name)))
    wish = TrainConfig(steps=2, data="synthetic", blas="own", scheduler="serial")
    train(wish)
    assert made == {name: 1 for _, name in MADE_ONCE}


def test_the_wish_stays_as_it_was() -> None:
    wish = TrainConfig(steps=5)
    planned = prepare.plan(wish)
    assert planned.wish == wish == TrainConfig(steps=5)
    assert (wish.batch_slice, wish.token_slice, wish.cores, wish.fusion, wish.warmup) == (None,) * 5
    decided = planned.config
    assert None not in (decided.batch_slice, decided.token_slice, decided.cores, decided.fusion, decided.warmup)
    assert planned.memory_bytes == memory.memory_bytes(decided)


def test_a_plan_has_the_products_of_all_its_programs_once() -> None:
    planned = prepare.plan(generating.config("gpt2", prompt=[7] * 24))
    steps = planned.program, present(planned.beside).program
    operands = [operand for step in steps for op in step.ops for call in op.calls for operand in call.operands]
    products = [operand for operand in operands if isinstance(operand, Product)]
    assert set(planned.products) == set(products) > set(planned.program.products)
    assert len(planned.products) == len(set(products)) < len(products)
