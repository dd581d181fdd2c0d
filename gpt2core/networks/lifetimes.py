"""Memory of activations: their lives follow from the step's program, and their places from their lives.

No Numba and no NumPy: servers size runs with it.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

from gpt2core.networks.network import network_of
from gpt2core.networks.reverse import add_step
from gpt2core.spec.config import DEFAULTS, TrainConfig
from gpt2core.spec.optimizers import READERS
from gpt2core.spec.roles import with_role
from gpt2core.step import slicing
from gpt2core.step.builder import Builder
from gpt2core.step.grid import ONE_TILE
from gpt2core.step.ops import Arena, Own, Tensor
from gpt2core.step.parameters import Parameter
from gpt2core.step.placement import Need, Policy, place
from gpt2core.step.sketch import Life, Sketch
from gpt2core.step.tensors import ITEMSIZE, ArenaPlan, TensorSpec, plan_arena

ACTIVATIONS = "activations"
# By whether a step has gradients. Without them, overlap is traded for memory: tensors of different rows share a place
# (docs/decisions/0033).
POLICIES = {True: Policy(), False: Policy(alike=False)}
MOST_CHUNKS = 3  # of time: the first, those between and the last
SCHEDULE = ("lr_schedule", *(name for name, chosen_by in READERS if chosen_by == "lr_schedule"))  # bound to the length
NOT_OF_LIVES: dict[str, Any] = {
    name: DEFAULTS[name] for name in (*with_role("seed", "place", "length", "output"), *SCHEDULE)
}


def late(config: TrainConfig) -> int:
    """Number of layers by which weight gradients may lag behind: until then nothing overwrites what they read.

    On two threads they need not. On more, the critical path would be longer by them (docs/decisions/0009).
    """
    return 0 if config.threads <= 2 else 1


def arena(config: TrainConfig, specs: Sequence[TensorSpec]) -> ArenaPlan:
    """The arena of a network's activations."""
    by_name = {spec.name: spec for spec in specs}
    needs, inside = [], []
    for life in _lives(small(config), late(config)):
        parts = [_part(by_name[tensor.name], tensor) for tensor in life.tensors if tensor.name in by_name]
        if parts:
            rows = parts[0].shape[0]
            size = max(part.size * ITEMSIZE[part.dtype] for part in parts)
            needs.append(Need(rows, -(-size // rows), life.first, life.last))
            inside.append(parts)
    offsets, size = place(needs, POLICIES[config.has_gradients])
    found = [(offset, part) for offset, parts in zip(offsets, inside, strict=True) for part in parts]
    found.sort(key=lambda each: each[0])
    return ArenaPlan(tuple(part for _, part in found), tuple(offset for offset, _ in found), size)


def _part(spec: TensorSpec, tensor: Tensor) -> TensorSpec:
    """One layer of a tensor, or all of it."""
    return spec if tensor.layer is None else dataclasses.replace(spec, name=str(tensor), shape=spec.shape[1:])


def small(config: TrainConfig) -> TrainConfig:
    """A configuration whose tensors have the same lives, with as few slices as possible. By diagonals, layers overlap
    by the number of chunks."""
    chunks = -(-config.seq // slicing.sizes(config)[1])
    if config.op_order == "layers":
        chunks = min(MOST_CHUNKS, chunks)
    seq = max(chunks, config.model.shortest)
    return dataclasses.replace(
        config, fusion=config.fused, batch=config.batch_ranks, seq=seq, batch_slice=1,
        token_slice=-(-seq // chunks), threads=1, grad_accum=1, op_threads=None, split=None, evaluate_every=0,
        prompt=config.prompt and config.prompt[:seq],
        **NOT_OF_LIVES,
    )  # fmt: skip


@functools.lru_cache(maxsize=64)  # a sweep sizes thousands of runs
def _lives(config: TrainConfig, late: int) -> list[Life]:
    return sketched(config)[0].lives(late)


@functools.lru_cache(maxsize=16)
def sketched(config: TrainConfig) -> tuple[Sketch, tuple[Parameter, ...]]:
    """The step of a `small` configuration, and the parameters whose gradients ranks fold: see add_step."""
    plans = {kind: plan_arena(specs) for kind, specs in network_of(config).tensors(config).items()}
    step = Sketch(plans, config.fused)
    return step, tuple(add_step(step, config, _no_update))


def _no_update(step: Builder, _blocks: Sequence[Parameter], _layer: int | None, _gradients: Arena | Own) -> None:
    step.op("update", "update", _no_update, ONE_TILE, (), filler=True)
