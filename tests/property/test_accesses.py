"""What the step program declares is what the kernels do: each task is run on memory in which everything it did not
declare is poisoned, and must still write the right bits, and nothing else.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
import pytest

from gpt2core.gemm import libraries as gemm
from gpt2core.gemm import products
from gpt2core.measure.tracing import new_record
from gpt2core.networks.gpt2 import program
from gpt2core.networks.gpt2.tensors import weight_specs
from gpt2core.networks.memory import plan as memory_plan
from gpt2core.networks.network import network_of
from gpt2core.run import train
from gpt2core.schedulers import dispatch
from gpt2core.schedulers.serial import serial_loop
from gpt2core.spec.config import FUSIONS, ModelConfig, TrainConfig
from gpt2core.step import slicing
from gpt2core.step.blocks import WeightBlocks
from gpt2core.step.memory import Memory
from gpt2core.step.ops import Access, Mode, Program

ALONGSIDE = {"normed": ("mean", "rstd"), "attended": ("lse",)}  # written by the same task, read by the same readers
WEIGHTS = {"qkvw": "qkvb", "attprojw": "attprojb", "fcw": "fcb", "fcprojw": "fcprojb", "wte": None}


class Views:
    """Region keys to the memory they stand for."""

    def __init__(self, config: TrainConfig) -> None:
        self.blocks = WeightBlocks(weight_specs(config.model))
        self.slices = slicing.cut(config)

    def of(self, memory: Memory, key: tuple[Hashable, ...]) -> list[np.ndarray]:
        name, arrays = str(key[0]), memory.arrays
        gradient = name.startswith("d") and name[1:] in (*WEIGHTS, "wpe", "ln1", "ln2", "lnf")
        plain = name[1:] if gradient else name
        if plain in WEIGHTS or plain == "wpe":
            blocks = self.blocks.of(plain)
            first, last = blocks[key[2]]
            parts = [(plain, key[1], slice(first, last))]
            if WEIGHTS.get(plain):
                parts.append((WEIGHTS[plain], key[1], slice(first, last)))
        elif plain in ("ln1", "ln2", "lnf"):
            parts = [(plain + kind, key[1] if len(key) > 1 else None, slice(None)) for kind in "wb"]
        elif name == "losses":
            return [arrays["losses"], arrays["control"]]
        elif name == "partial":
            return [arrays[name][key[1] * len(self.slices) + key[2]]]
        elif name == "squares":
            return [arrays[name][key[1] : key[1] + 1]]
        elif name == "clipping":
            return [arrays["clipping"], arrays["gradient_norms"], arrays["control"]]
        else:
            rows = slice(self.slices[key[-1]].row0, self.slices[key[-1]].row1)
            index = key[1:-1]
            return [arrays[n][(*index, rows)] for n in (name, *ALONGSIDE.get(name, ()))]
        views = []
        for tensor, layer, rows in parts:
            names = ["d" + tensor] if gradient else [tensor]
            views += [(arrays[n] if layer is None else arrays[n][layer])[rows] for n in names]
            if not gradient:  # a weight's moments go with it
                base = arrays[tensor]
                part = (base if layer is None else base[layer])[rows]
                begin = (part.ctypes.data - memory.arenas["weights"].ctypes.data) // 4
                views += [arrays[m][begin : begin + part.size] for m in ("first_moment", "second_moment")]
        return views


def prepare(config: TrainConfig) -> tuple[Program, Memory, dispatch.Dispatch, object]:
    step, memory = program.build(config), Memory(memory_plan(config))
    train.fill(memory, config, network_of(config).data(config))
    libraries = products.choose(gemm.load(config.blas, config.precision), [], lambda _: None)
    record = new_record(1, 1, 0, 64, 0, micros=config.grad_accum)
    return step, memory, dispatch.bind(step, memory, 1, libraries), record


@pytest.mark.parametrize(
    ("fusion", "change"), [*((fusion, {}) for fusion in FUSIONS), ("rows", {"grad_accum": 2, "grad_clip": 0.5})]
)
@pytest.mark.parametrize(
    ("blas", "precision"), [("own", "fp32"), ("own", "bf16"), ("mkl", "bf16"), ("mkl", "fp32"), ("openblas", "fp32")]
)
def test_tasks_read_and_write_what_they_declare(blas, precision, fusion, change):
    config = slicing.resolve(
        TrainConfig(
            model=ModelConfig(layers=2, heads=2, channels=32, vocab=61, context=16),
            batch=3,
            seq=10,
            steps=1,
            batch_slice=2,
            token_slice=4,
            data="synthetic",
            blas=blas,
            precision=precision,
            fusion=fusion,
            **change,
        )
    )
    views = Views(config)
    step, real, bound, record = prepare(config)
    _, poisoned, poisoned_bound, _ = prepare(config)
    constants = {name: real.arrays[name].copy() for name in ("row_batch", "row_time", "settings")}
    keys = {number: key for key, number in step.regions.items()}

    def declared(memory: Memory, accesses: tuple[Access, ...], written: bool) -> list[np.ndarray]:
        regions = [a.region for a in accesses if not written or a.mode is not Mode.READ]
        return [view for region in regions for view in views.of(memory, keys[region])]

    for number, (op, tile) in enumerate(step.tasks):
        for block in poisoned.arenas.values():
            block[:] = 0xFF  # NaN as a float
        for name, values in constants.items():
            poisoned.arrays[name][:] = values
        poisoned.arrays["control"][:] = 0
        for to, source in zip(
            declared(poisoned, tile.accesses, False), declared(real, tile.accesses, False), strict=True
        ):
            to[...] = source
        before = {kind: block.copy() for kind, block in poisoned.arenas.items()}
        for memory, table in ((real, bound), (poisoned, poisoned_bound)):
            memory.arrays["control"][:] = 0
            serial_loop(0, table.tasks[number : number + 1], table.context, record, memory.arrays["control"], 1)
        for got, wanted in zip(
            declared(poisoned, tile.accesses, True), declared(real, tile.accesses, True), strict=True
        ):
            assert np.isfinite(wanted).all(), (op.label, tile.label)
            assert got.tobytes() == wanted.tobytes(), f"{op.label} {tile.label} reads more than it declares"
            got[...] = 0
        poisoned.arrays["control"][:] = 0
        # What it did not declare to write is as before; what a thread has for itself is nobody's.
        allowed = Memory(memory_plan(config))
        for kind, block in allowed.arenas.items():
            block[:] = before[kind]
        for view in declared(allowed, tile.accesses, True):
            view[...] = 0
        allowed.arrays["control"][:] = 0
        for own in ("strips", "gradient", "words"):
            if own in allowed.arrays:
                allowed.arrays[own][:] = poisoned.arrays[own]
        for kind, block in allowed.arenas.items():
            assert block.tobytes() == poisoned.arenas[kind].tobytes(), (
                f"{op.label} {tile.label} writes undeclared {kind}"
            )
