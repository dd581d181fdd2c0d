"""Plans a run, before anything is allocated."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gpt2core.compile.collector import without_collector
from gpt2core.networks import program
from gpt2core.networks.memory import plan as plan_memory
from gpt2core.networks.network import Network, network_of
from gpt2core.node import topology
from gpt2core.run import proofs
from gpt2core.run.memory import check_fits
from gpt2core.spec.beside import step_beside
from gpt2core.spec.config import TrainConfig
from gpt2core.step import graph, sections
from gpt2core.step.ops import Product, Program
from gpt2core.step.rank import Place, Rank
from gpt2core.step.tensors import ArenaPlan

Emit = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class RunPlan:
    """What a run does, made once and before anything is allocated: `wish` is what was asked for, `config` the same with
    every automatic setting decided. `beside`: the step that its evaluations repeat, or that reads the prompt; its
    arenas are parts of the run's.
    """

    wish: TrainConfig
    config: TrainConfig
    network: Network
    cores: tuple[int, ...]
    arenas: Mapping[str, ArenaPlan]
    program: Program
    graph: graph.Graph
    rank: int = 0  # arenas, cores and program are those of this one; all ranks have one `config`
    beside: RunPlan | None = None

    @property
    def programs(self) -> list[Program]:
        """The step's program, and that of the step beside it."""
        return [self.program, *(self.beside.programs if self.beside else [])]

    @property
    def products(self) -> list[Product]:
        """The matrix products of its programs, each once."""
        return list(dict.fromkeys(product for step in self.programs for product in step.products))

    @property
    def memory_bytes(self) -> dict[str, int]:
        """Bytes of each arena."""
        return {kind: arena.bytes for kind, arena in self.arenas.items()}

    def event(self) -> dict[str, Any]:
        return {
            "event": "planned",
            "memory_bytes": self.memory_bytes,
            "tasks": len(self.program.tasks),
            "edges": len(self.graph.edges),
            "batch_slice": self.config.batch_slice,
            "token_slice": self.config.token_slice,
            "cores": list(self.cores),
        }


def silent(_: dict[str, Any]) -> None:
    """An Emit that drops events."""


def plan(
    wish: TrainConfig, reserve_bytes: int | None = None, prove: bool = False, rank: int = 0, place: Place | None = None
) -> RunPlan:
    """Decide slices, fusion and cores, place the tensors, build the step program and its graph, and prove the graph
    race-free.

    reserve_bytes: what the run will allocate besides its arenas; both must fit beside the plan. None: it will not run.
    prove: derive and prove the graph even if a proven one is cached. rank: of a run of several. place: where it runs;
    None: all ranks are on this node.
    Raises ConfigError for missing cores, NotEnoughMemory if arenas or graph would not fit, GraphError if the program is
    wrong.
    """
    config = program.decided(wish)
    arenas = plan_memory(config, rank)
    each_bytes = 0 if reserve_bytes is None else sum(arena.bytes for arena in arenas.values()) + reserve_bytes
    place = place or Place(config.ranks, Rank(rank, config.ranks))
    run_bytes = each_bytes * place.on_node
    if run_bytes:
        check_fits(config, run_bytes, place.on_node)  # first, because the program of a huge run is slow
    network = network_of(config)
    network.check(config)
    first, sharing = place.sharing.number * config.threads, place.sharing.total
    every = topology.choose_cores(config.cores, config.threads * sharing, config.allow_oversubscription)
    cores = every[first : first + config.threads]
    if sharing == config.ranks:  # else cores of one node are not those of all ranks
        config = dataclasses.replace(config, cores=tuple(sorted(set(every))))
    with without_collector():
        step = program.build(config, arenas, rank)
        sections.check_op_threads(step, config.op_threads)
        tasks = proofs.proven(step, config.sync, prove, run_bytes)
        other = step_beside(config)
        beside = None if other is None else dataclasses.replace(plan(other, prove=prove), cores=cores)
    return RunPlan(wish, config, network, cores, arenas, step, tasks, rank, beside)
