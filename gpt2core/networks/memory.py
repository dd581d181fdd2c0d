"""Memory that a run of any network needs. No Numba and no NumPy: servers call it before they accept a run."""

from __future__ import annotations

import dataclasses

from gpt2core.gemm.sizes import PRODUCT_SCRATCH
from gpt2core.layers import goal
from gpt2core.networks import exchanged
from gpt2core.networks.lifetimes import ACTIVATIONS, arena
from gpt2core.networks.network import network_of
from gpt2core.optimizers import state
from gpt2core.ranks.layout import Layout
from gpt2core.spec.beside import step_beside
from gpt2core.spec.config import TrainConfig
from gpt2core.step import control
from gpt2core.step.tensors import KINDS, SCRATCH, ArenaPlan, TensorSpec, plan_arena


def plan(config: TrainConfig, rank: int = 0) -> dict[str, ArenaPlan]:
    """The arenas of one rank, one for each kind: the network's tensors and the run's own; with what the step beside its
    own needs."""
    own = _plan(config.part, exchanged.layout_of(config, rank) if config.ranks > 1 else None)
    if (beside := step_beside(config)) is None:
        return own
    other = _plan(beside)
    assert other["weights"].bytes == own["weights"].bytes, "both read the run's weights where they lie"
    temporary = own["temporary"].bytes, other["temporary"].bytes
    sizes = {
        ACTIVATIONS: max(own[ACTIVATIONS].bytes, other[ACTIVATIONS].bytes),  # a step's are not needed after it
        "temporary": max(temporary) if config.generate else sum(temporary),  # what generation keeps lies first in both
    }
    return own | {kind: dataclasses.replace(own[kind], bytes=size) for kind, size in sizes.items()}


def _plan(config: TrainConfig, layout: Layout | None = None) -> dict[str, ArenaPlan]:
    tensors = network_of(config).tensors(config)
    if not config.updates:
        tensors = state.constant(tensors, config.has_gradients)
    own = {"temporary": run_specs(config)}
    if layout is not None:
        own["temporary"] += layout.specs()
    if layout is not None and config.matrix_ranks == 1:  # a rank updates its shards only
        tensors = {**tensors, "optimizer": state.of_shards(config, layout.shard_elements)}
    plans = {kind: plan_arena([*tensors.get(kind, ()), *own.get(kind, ())]) for kind in KINDS if kind != ACTIVATIONS}
    return {kind: plans[kind] if kind in plans else arena(config, tensors[kind]) for kind in KINDS}


def run_specs(config: TrainConfig) -> list[TensorSpec]:
    """Tensors of every run: each thread's scratch for matrix products and control cells; and losses and the optimizer's
    settings, where the mode needs them."""
    return [
        TensorSpec(SCRATCH, (config.threads, PRODUCT_SCRATCH), "int32"),
        *([TensorSpec("losses", (config.steps,), "float64")] if "loss" in config.phases else []),
        *goal.specs(config),
        *(state.settings(config) if config.updates else []),
        TensorSpec("control", (control.CELLS,), "int64"),
    ]


def memory_bytes(config: TrainConfig) -> dict[str, int]:
    """Bytes of each arena; exact."""
    return {kind: arena.bytes for kind, arena in plan(config).items()}
