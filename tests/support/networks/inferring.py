"""What the ops of one step leave in memory."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from gpt2core.gemm import libraries as gemm
from gpt2core.gemm import table
from gpt2core.measure.tracing import new_record
from gpt2core.networks import program
from gpt2core.networks.memory import plan
from gpt2core.networks.network import network_of
from gpt2core.run import prepare, train
from gpt2core.run.fill import fill
from gpt2core.schedulers import dispatch
from gpt2core.schedulers.serial.loop import serial_loop
from gpt2core.spec.config import TrainConfig
from gpt2core.step import slicing
from gpt2core.step.memory import Memory


def filled(settings: TrainConfig) -> Memory:
    """Memory before the first step, with weights and data."""
    memory = Memory(plan(settings))
    fill(memory, settings, network_of(settings).data(settings))
    return memory


@functools.cache
def computed(settings: TrainConfig, until: str = "") -> Memory:
    """Memory after the ops of one step up to a phase."""
    step, memory = program.build(settings), filled(settings)
    products = table.choose(gemm.load(settings.blas, settings.precision), step.products, prepare.silent)
    dispatch.run_once(step, memory, products)
    bound = dispatch.bind(step, memory, 1, products)
    first = [op.phase for op in step.ops].index(until) if until else len(step.ops)
    tasks = bound.tasks[: sum(len(op.tiles) for op in step.ops[:first])]
    serial_loop(0, tasks, bound.context, new_record(1, 1, 0, 64, 0), memory.arrays["control"], 1)
    return memory


def halves_are_close(inference: Callable[..., TrainConfig], outputs: str) -> None:
    """Check bfloat16 against float32: matrices of half the bytes, outputs within a percent, and the same bits from two
    threads. inference: makes a configuration."""
    settings = [slicing.resolve(inference(steps=1, precision=each)) for each in ("fp32", "bf16")]
    whole, half = map(computed, settings)
    assert {name: array.dtype.itemsize for name, array in half.weights.items()} == {
        name: 2 if array.ndim == 2 else 4 for name, array in whole.weights.items()
    }
    found, near = (memory.arrays[outputs].astype(np.float64) for memory in (whole, half))
    assert 0 < np.linalg.norm(near - found) < 0.01 * np.linalg.norm(found)
    other = train.train(inference(steps=1, precision="bf16", scheduler="task", threads=2))
    assert other.outputs_sha256 == train.train(settings[1]).outputs_sha256
