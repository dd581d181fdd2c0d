"""One run: plan, check, allocate, compile, train on a pinned team, and report what was measured."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import hashlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpt2core.compile.entries import kernel_entry
from gpt2core.gemm import libraries as gemm
from gpt2core.gemm import products
from gpt2core.gemm.libraries import Library
from gpt2core.measure import profile
from gpt2core.networks import program
from gpt2core.networks.memory import memory_bytes
from gpt2core.networks.memory import plan as plan_memory
from gpt2core.networks.network import fusion_of, network_of
from gpt2core.node import environment, pages, pinning
from gpt2core.run.memory import check_fits, first_touch
from gpt2core.run.run import Emit, Plan, Run, silent
from gpt2core.schedulers import dispatch
from gpt2core.schedulers.team import Team
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import ConfigError, MachineError, UnreadableFile
from gpt2core.spec.result import TrainResult
from gpt2core.step import graph, slicing
from gpt2core.step.memory import Memory
from gpt2core.step.ops import Product, Program


def plan(config: TrainConfig) -> Plan:
    """Resolve slices and cores, build the step program and its graph, and prove the graph race-free.

    Raises ConfigError for cores that are not there, GraphError if the program is wrong.
    """
    config = slicing.resolve(config)
    network_of(config).check(config)
    cores = pinning.choose_cores(config.cores, config.threads, config.allow_oversubscription)
    config = dataclasses.replace(
        config, cores=tuple(sorted(set(cores))), warmup=config.warmup_steps, fusion=fusion_of(config)
    )
    with without_collector():
        step = program.build(config)
        check_op_names(config, step)
        tasks = graph.build(step, config.sync)
        graph.validate(step, tasks)
    return Plan(config, cores, step, tasks, memory_bytes(config))


@contextlib.contextmanager
def without_collector() -> Iterator[None]:
    """Keep Python's collector of cycles off: it walks a plan's millions of objects again and again and frees none."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def check_op_names(config: TrainConfig, step: Program) -> None:
    """Raise ConfigError if op_threads names an op that the program does not have."""
    known = list(dict.fromkeys(op.name for op in step.ops))
    for name in config.op_threads or {}:
        if name not in known:
            raise ConfigError("op_threads", name, "ops of the step program: " + ", ".join(known))


def train(
    config: TrainConfig,
    emit: Emit = silent,
    stop: threading.Event | None = None,
    profile_path: Path | None = None,
    artifacts: Path | None = None,
) -> TrainResult:
    """Run a configuration in this process and return what was measured; leave a profile at profile_path, and
    one in the folder `artifacts` if it can be written.

    emit gets the events of gpt2core.launch. Setting `stop` ends the run at a step's end.
    Raises the InputErrors of configuration, files and memory, NotFinite with the step, Cancelled.
    """
    check_fits(slicing.resolve(config))  # first: it is quick, and the plan of a huge run is not
    resident = pages.Residency()
    planned = plan(config)
    config = planned.config
    network = network_of(config)
    data = network.data(config)
    emit(planned.event())
    resident.grew_by("plan")
    libraries = gemm.load(config.blas, config.precision)
    resident.grew_by("blas")
    compile_entries(planned.program, libraries, emit)
    resident.grew_by("compiled")
    chosen = choose_products(planned.program, libraries, emit)
    resident.grew_by("blas")
    team = Team(planned.cores)
    arenas = Memory(plan_memory(config))
    first_touch(team, arenas)
    fill(arenas, config, data)
    resident.grew_by("arenas")
    run = Run(planned, arenas, dispatch.bind(planned.program, arenas, config.threads, chosen), team)
    run.execute(emit, stop)
    resident.grew_by("run")
    if config.save is not None:
        network.write(config, arenas.weights)
    about = environment.describe(chosen.name, chosen.version, planned.cores)
    if config.trace is not None:
        profile.write_json_gz(Path(config.trace), run.trace(about))
    if profile_path is not None:
        profile.write_json_gz(profile_path, run.profile(about))
    if artifacts is not None:
        try:
            profile.write_json_gz(artifacts / "profile.json.gz", run.profile(about))
        except UnreadableFile as error:  # a full disk costs the profile, not the result
            emit({"event": "warning", "message": str(error)})
    return run.result(about, weights_sha256(arenas.weights), resident.pieces)


def choose_products(step: Program, libraries: Sequence[Library], emit: Emit) -> products.Products:
    """What computes the program's matrix products: one library, or the fastest for each."""
    wanted = [operand for op in step.ops for call in op.calls for operand in call.operands]
    return products.choose(libraries, [operand for operand in wanted if isinstance(operand, Product)], emit)


def compile_entries(step: Program, libraries: Sequence[Library], emit: Emit) -> None:
    """Compile or load every kernel; says so once one is not in the cache."""
    kernels = [kernel_entry(call.kernel) for op in step.ops for call in op.calls]
    entries = list(dict.fromkeys([*(library.entry for library in libraries), *kernels]))
    cold = False
    for number, entry in enumerate(entries):
        if cold:
            emit({"event": "compiling", "done": number, "total": len(entries) + 1, "kernel": entry.name})
        _ = entry.address
        cold = cold or not entry.was_cached
    if cold:
        emit({"event": "compiling", "done": len(entries), "total": len(entries) + 1, "kernel": "scheduler"})


def fill(arenas: Memory, config: TrainConfig, data: Mapping[str, NDArray[np.generic]]) -> None:
    """Weights from the checkpoint or the seed, the network's data, the optimizer's settings."""
    network = network_of(config)
    if config.checkpoint is None:
        network.initialise(config, arenas.weights)
    else:
        network.read(config, arenas.weights)
    arenas.arrays["settings"][:] = (
        config.lr, config.beta1, config.beta2, config.eps, config.weight_decay, config.grad_clip
    )  # fmt: skip
    for name, array in data.items():
        if name in arenas.arrays:
            arenas.arrays[name][...] = array
        else:
            arenas.arrays[name] = array


def weights_sha256(weights: Mapping[str, NDArray[np.float32]]) -> str:
    """SHA-256 over every weight's bytes, in the table's order: equal only if training gave the same bits."""
    digest = hashlib.sha256()
    for array in weights.values():
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def plan_event(config: TrainConfig) -> dict[str, Any]:
    """The sizes of a run without running it."""
    return plan(config).event()


def graph_dot(config: TrainConfig) -> str:
    """The run's task graph in Graphviz's language. Raises MachineError if it is too large to be drawn."""
    planned = plan(config)
    if len(planned.graph) > 20_000:
        raise MachineError(f"a graph of {len(planned.graph)} nodes cannot be drawn; take a smaller model")
    return graph.dot(planned.graph)
