"""The compiled code of a run: its kernels, and what computes its matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from gpt2core.compile.entries import kernel_entry
from gpt2core.gemm import libraries, table
from gpt2core.gemm.libraries import Library
from gpt2core.node.pages import Residency
from gpt2core.process import launch
from gpt2core.process.beside import compiling_beside
from gpt2core.run.prepare import Emit, RunPlan
from gpt2core.spec.config import TrainConfig
from gpt2core.step.ops import Product

if TYPE_CHECKING:
    from gpt2core.ranks.world import World


def load_code(planned: RunPlan, emit: Emit, resident: Residency, world: World | None = None) -> table.Products:
    """Load the code of a run: its kernels, and what computes its matrix products, one library for all or the fastest
    for each. What the node lacks is compiled and measured. Rank 0 compiles first, and chooses for all ranks.

    Raises MachineError if a requested library is not installed.
    """
    products = planned.products
    candidates = load_libraries(planned.config, products)
    needed = candidates if products else []
    if world:
        world.first_before(partial(compile_entries, planned, needed, emit))
    else:
        compile_entries(planned, needed, emit)
    resident.grew_by("compiled")
    if world:
        names, choices, name = world.from_first(lambda: table.choose(candidates, products, emit).choice)
        chosen = table.Products.chosen(candidates, names, choices, name)
    else:
        chosen = table.choose(candidates, products, emit)
    for product in products:
        chosen.operand(product)
    resident.grew_by("blas")
    return chosen


def load_libraries(config: TrainConfig, products: Sequence[Product]) -> list[Library]:
    """Candidate libraries for a run's products; of generation our own product of float32 (layers/columns.py).

    Raises MachineError if the requested one is not installed.
    """
    if config.generate:
        return [libraries.ours()]
    if config.blas == "auto" and not table.worth_choosing(products):
        return [libraries.ours(config.precision)]  # chosen in any case
    return libraries.load(config.blas, config.precision)


def compile_entries(planned: RunPlan, products: Sequence[Library], emit: Emit) -> None:
    """Compile or load every kernel, and our code for these libraries. If one is not in the cache, events report
    progress, and another process compiles the scheduler's loop and the last kernels."""
    config = planned.config
    kernels = list(dict.fromkeys(each for step in planned.programs for each in step.kernels))
    entries = list(dict.fromkeys([*(each.entry for each in products), *(kernel_entry(*each) for each in kernels)]))
    if all(entry.is_kept for entry in entries):
        for entry in entries:
            _ = entry.address
        return
    names = [f"{kernel.__module__}:{kernel.__name__}:{','.join(dtypes)}" for kernel, dtypes in reversed(kernels)]
    with compiling_beside(planned.cores, launch.loop_command(config.scheduler, config.runtime, names)):
        for number, name in enumerate([*(entry.name for entry in entries), "scheduler"]):
            emit({"event": "compiling", "done": number, "total": len(entries) + 1, "kernel": name})
            if number < len(entries):
                _ = entries[number].address
