"""Generation, with the logits from which each token was chosen; logits of a whole sequence, from the same weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpt2core.gemm import libraries as gemm
from gpt2core.gemm import table
from gpt2core.measure.tracing import new_record
from gpt2core.networks import halves, program
from gpt2core.networks.memory import plan
from gpt2core.networks.network import network_of
from gpt2core.run import prepare
from gpt2core.run.fill import fill
from gpt2core.schedulers import dispatch
from gpt2core.schedulers.serial.loop import serial_loop
from gpt2core.spec.beside import step_beside
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.models import ModelConfig
from gpt2core.step.memory import Memory

MODELS = {
    "gpt2": ModelConfig(layers=2, heads=4, channels=48, vocab=261, context=40),
    "lstm": {"network": "lstm", "embedding": 40, "hidden": 48, "layers": 2, "vocab": 260, "context": 40},
    "lstm-tied": {"network": "lstm", "embedding": 48, "hidden": 48, "layers": 1, "vocab": 99, "tied": True},
}
LARGER = 5  # factor of the initial weights, so that the largest logit depends on the earlier tokens


def config(network: str, **settings: object) -> TrainConfig:
    how = {"mode": "infer", "generate": 12, "prompt": [7, 3, 90], **settings}
    return TrainConfig.from_dict({"model": MODELS[network], **how})


def filled(run: TrainConfig) -> tuple[Memory, dict[str, np.ndarray]]:
    """Memory with larger initial weights, and these."""
    memory = Memory(plan(run))
    data = network_of(run).data(run) if run.generate else {}
    fill(memory, run, data)
    for weight in memory.weights.values():
        halves.fill(weight, halves.widened(weight) * LARGER)
    return memory, {name: halves.widened(weight).copy() for name, weight in memory.weights.items()}


def bound(run: TrainConfig, memory: Memory) -> dispatch.Dispatch:
    step = program.build(run)
    products = table.choose([gemm.ours()], step.products, prepare.silent)
    dispatch.run_once(step, memory, products)
    return dispatch.bind(step, memory, 1, products)


def generated(run: TrainConfig) -> tuple[list[int], np.ndarray, dict[str, np.ndarray]]:
    """Tokens, the logits (tokens, V) from which each was chosen, and weights."""
    memory, weights = filled(run)
    first, logits = step_beside(run), []
    assert first is not None
    for config, arrays in ((first, Memory(plan(first), memory.arenas)), (run, memory)):
        found, record = bound(config, arrays), new_record(1, config.steps, 0, 64, 0)
        arrays.arrays["control"][...] = 0
        for step in range(config.steps):
            serial_loop(0, found.tasks, found.context, record, arrays.arrays["control"], step + 1)
            logits.append(arrays.arrays["logits"][0, : run.model.vocab].copy())
    return [int(token) for token in memory.arrays["tokens"]], np.array(logits[: run.generate]), weights


def logits_of(network: str, tokens: Sequence[int]) -> np.ndarray:
    """Logits (T, V) of the whole forward pass over a sequence."""
    run = TrainConfig.from_dict({
        "model": MODELS[network], "mode": "infer", "batch": 1, "seq": len(tokens), "token_slice": len(tokens),
        "batch_slice": 1, "data": "synthetic", "steps": 1, "warmup": 0,
    })  # fmt: skip
    memory, _ = filled(run)
    data = {**network_of(run).data(run), "stream": np.array([*tokens, 0], np.uint16)}
    for name, array in data.items():
        if name in memory.arrays:
            memory.arrays[name][...] = array
        else:
            memory.arrays[name] = array
    found = bound(run, memory)
    serial_loop(0, found.tasks, found.context, new_record(1, 1, 0, 64, 0), memory.arrays["control"], 1)
    return memory.arrays["logits"][:, : run.model.vocab].copy()
