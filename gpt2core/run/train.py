"""One run: plan, check, allocate, compile, train on a pinned team, and report the measurements."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gpt2core.compile.objects import compiled_here
from gpt2core.measure import environment, profile
from gpt2core.networks.exchanged import layout_of
from gpt2core.networks.memory import memory_bytes
from gpt2core.node import pages
from gpt2core.node.files import check_output
from gpt2core.process.node_time import NodeTime
from gpt2core.run.canary import Canary
from gpt2core.run.code import load_code
from gpt2core.run.communication import communication, new_traffic
from gpt2core.run.evaluation import Evaluations
from gpt2core.run.execute import execute
from gpt2core.run.fill import fill
from gpt2core.run.first_touch import first_touch
from gpt2core.run.memory import RESERVE_BYTES
from gpt2core.run.outputs import generated, outputs
from gpt2core.run.prepare import Emit, plan, silent
from gpt2core.run.prompt import read_prompt
from gpt2core.run.rank_traces import of_all_ranks
from gpt2core.run.report import Report
from gpt2core.schedulers import dispatch
from gpt2core.spec import modes, schedulers
from gpt2core.spec.config import DEFAULTS, TrainConfig
from gpt2core.spec.errors import MachineError, UnreadableFile
from gpt2core.spec.phases import MODES
from gpt2core.spec.result import TrainResult
from gpt2core.step import graph
from gpt2core.step.memory import Memory
from gpt2core.step.owners import owners

if TYPE_CHECKING:
    from gpt2core.ranks.world import World

MOST_DRAWN = 20_000  # nodes of a graph


def train(
    config: TrainConfig,
    emit: Emit = silent,
    stop: threading.Event | None = None,
    profile_path: Path | None = None,
    artifacts: Path | None = None,
    spent: NodeTime | None = None,
    prove: bool = False,
    world: World | None = None,
) -> TrainResult:
    """Run a configuration, or the part of one of its ranks, in this process and return its measurements.

    Write a profile to profile_path, and to the folder `artifacts` if that is possible. spent: this process's time so
    far, by its parts. prove: see `plan`. world: of a run of several ranks; rank 0's result is the run's.

    emit gets the events of gpt2core.process.launch. Setting `stop` ends the run at a step's end.
    Raises the InputErrors of configuration, files and memory, NotFinite with the step, Cancelled.
    """
    spent = spent or NodeTime()
    resident = pages.Residency()
    rank = world.rank.number if world else 0
    together = world.agreed if world else contextlib.nullcontext
    with together():
        planned = plan(config, RESERVE_BYTES, prove, rank, world.place if world else None)
        config, network = planned.config, planned.network
        for setting in ("save", "trace") if rank == 0 else ():
            if (path := getattr(config, setting)) is not None:
                check_output(setting, path)  # they are written at the end, perhaps after hours
        who = schedulers.scheduler(config.scheduler)
        who.load(who.chosen(config), planned.cores)
        data = network.data(config.part)
    if world:
        layout = layout_of(config, rank)
        traffic = new_traffic(config, layout)
        data = {**data, **world.arrays(layout.messages), "traffic": traffic}
    emit(planned.event())
    resident.grew_by("plan")
    spent.went_to("planning")
    chosen = load_code(planned, emit, resident, world)
    spent.went_to("compiling")
    canary = Canary(planned.cores)
    canary.time()  # before the arenas are resident, so that its memory does not add to them in the run's peak
    resident.grew_by("compiled")
    with together():
        arenas = Memory(planned.arenas)
        first_touch(planned.cores, arenas, owners(planned.program, planned.arenas, config.threads))
        fill(arenas, config, data, rank)
        checkpoint = {} if config.checkpoint is None else network.checkpoint(config)
    resident.grew_by("arenas")
    dispatch.run_once(planned.program, arenas, chosen)
    bound = dispatch.bind(planned.program, arenas, config.threads, chosen)
    evaluations = None
    if planned.beside and config.evaluate_every:  # each rank evaluates all; they agree on a stop in a step only
        evaluations = Evaluations(planned.beside, arenas, chosen, emit, None if world else stop)
    link = world.link() if world else None
    spent.went_to("preparing")
    first_token_s = None
    if planned.beside and config.generate:
        first_token_s = read_prompt(planned.beside, arenas, chosen, stop)
    report = Report(execute(planned, arenas, bound, emit, stop, spent, evaluations))
    resident.grew_by("run")
    if config.save is not None:
        whole = network.whole(config, arenas.weights, world.at_first) if world else arenas.weights
        if rank == 0:
            network.write(config, whole)
    about = environment.describe(chosen.name, chosen.version, planned.cores)
    if world:
        about["mpi"] = world.library
        if world.nodes > 1:
            about["nodes"] = world.nodes
    if checksums := network.checksums(config):
        about["data"] = dict(checksums)
    if report.measured.scheduler:
        about["scheduler"] = dict(report.measured.scheduler)
    if config.trace is not None:
        trace = report.trace(about)
        if world:
            trace = of_all_ranks(world, report, layout, trace)
        if rank == 0:
            profile.write_json_gz(Path(config.trace), trace)
    if profile_path is not None:
        profile.write_json_gz(profile_path, report.profile(about))
    if artifacts is not None:
        try:
            profile.write_json_gz(artifacts / "profile.json.gz", report.profile(about))
        except UnreadableFile as error:  # a full disk costs the profile, not the result
            emit({"event": "warning", "message": str(error)})
    sha256 = weights_sha256(arenas.weights) if config.updates else None
    if world and config.matrix_ranks > 1:  # that of all ranks' parts
        sha256 = hashlib.sha256("".join(world.gathered(str(sha256))).encode()).hexdigest()
    result = report.result(about, sha256, resident.pieces)
    if world:
        useful_s = [thread.useful_s for thread in result.threads]
        ranks = world.gathered(communication(report.measured, layout, traffic, useful_s, link))
        result = dataclasses.replace(result, communication=ranks)
    compiled = compiled_here()
    canary.time()  # after the peak was read, as what follows
    if not config.has_gradients:
        tokens = generated(arenas, config) if config.generate else None
        sha256, sketch = outputs(planned.program, arenas, config.model.vocab)
        result = dataclasses.replace(result, outputs_sha256=sha256, outputs_sketch=sketch, tokens=tokens)
    spent.went_to("finishing")
    warnings = [*result.warnings, *([chosen.doubt] if chosen.doubt else [])]
    return dataclasses.replace(
        result, checkpoint=checkpoint, compiled=compiled, canary=canary.about(), node_time=spent.to_dict(),
        warnings=warnings,
        time_to_first_token_s=first_token_s,
    )


def weights_sha256(weights: Mapping[str, NDArray[np.float32]]) -> str:
    """SHA-256 over every weight's bytes, in the table's order: equal only if weights are bit-identical."""
    digest = hashlib.sha256()
    for array in weights.values():
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def plan_event(config: TrainConfig, prove: bool = False) -> dict[str, Any]:
    """The sizes of a run without running it, and its memory in each mode; of generation in its own."""
    event = plan(config, prove=prove).event()
    shown = ("infer",) if config.generate else MODES  # nothing trains on one token
    if config.ranks > 1:  # inference has none
        shown = ("train",)
    by_mode = {mode: memory_bytes(modes.in_mode(config, mode, DEFAULTS)) for mode in shown}
    several = {"ranks": config.ranks} if config.ranks > 1 else {}  # the sizes are those of one
    return {**event, **several, "mode": config.mode, "memory_bytes_by_mode": by_mode}


def graph_dot(config: TrainConfig) -> str:
    """The run's task graph in Graphviz's language. Raises MachineError if it is too large to be drawn."""
    planned = plan(config)
    if len(planned.graph) > MOST_DRAWN:
        raise MachineError(
            f"the graph has {len(planned.graph)} nodes; at most {MOST_DRAWN} are drawn; choose a smaller model"
        )
    return graph.dot(planned.graph)
