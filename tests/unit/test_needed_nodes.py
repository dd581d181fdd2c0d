"""Ranks on several nodes: their command, the cores and memory of their node, the worker that offers them."""

from __future__ import annotations

import dataclasses
import sys

import pytest

from gpt2core.node import host
from gpt2core.process import launch
from gpt2core.run import prepare
from gpt2core.spec import extras
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import NotEnoughMemory
from gpt2core.spec.models import ModelConfig
from gpt2core.spec.series import series_key, series_machine
from gpt2core.step.rank import Place, Rank
from taskloom.analysis.fingerprint import environment_differences
from taskloom.analysis.processes import Process
from taskloom.worker import node
from taskloom.worker.settings import parse

GUARD = [sys.executable, "-P", "-m", "gpt2core.process.guard"]
CONFIG = TrainConfig(
    model=ModelConfig(layers=1, heads=2, channels=32, vocab=61, context=16), batch=4, seq=8, steps=2, data="synthetic",
    scheduler="serial", fusion="rows", ranks=4, allow_oversubscription=True,
)  # fmt: skip


def test_an_srun_gets_the_numbers_and_passes_its_input_to_rank_0():
    command = launch.of_nodes(["trainer"], ["srun", "--mpi=pmix"], nodes=2, ranks=8, threads=3)
    numbers = ["--nodes=2", "--ntasks=8", "--ntasks-per-node=4", "--cpus-per-task=3"]
    bound = ["--cpu-bind=cores", "--input=0"]
    assert command == [
        *GUARD, "srun", "--mpi=pmix", *numbers, *bound, "trainer", "--ranks", "8", "--nodes", "2"
    ]  # fmt: skip


def test_another_launcher_gets_the_numbers_where_it_names_them():
    launcher = ["mpiexec", "-hosts", "a,b", "-n", "{ranks}", "-ppn", "{ranks_per_node}", "--x={nodes}/{cores_per_rank}"]
    command = launch.of_nodes(["trainer"], launcher, nodes=2, ranks=8, threads=3)
    theirs = ["mpiexec", "-hosts", "a,b", "-n", "8", "-ppn", "4", "--x=2/3"]
    assert command == [*GUARD, *theirs, "trainer", "--ranks", "8", "--nodes", "2"]


def test_a_rank_takes_its_share_of_the_cores_that_it_may_use(monkeypatch):
    monkeypatch.setattr("gpt2core.node.topology.os.sched_getaffinity", lambda _: {4, 5, 6, 7})
    wish = dataclasses.replace(CONFIG, threads=2, scheduler="fork-join")
    unbound = [prepare.plan(wish, rank=rank, place=Place(2, Rank(rank % 2, 2))) for rank in range(4)]
    assert [planned.cores for planned in unbound] == [(4, 5), (6, 7)] * 2
    bound = prepare.plan(wish, rank=3, place=Place(2, Rank(0, 1)))
    assert (bound.cores, bound.config.cores) == ((4, 5), None)  # the cores of one node are not those of all ranks
    assert prepare.plan(CONFIG, rank=3).config.cores == (4, 5, 6, 7)


def test_a_node_needs_the_memory_of_its_own_ranks(monkeypatch):
    each = sum(prepare.plan(CONFIG).memory_bytes.values()) + (reserve := 1 << 30)
    monkeypatch.setattr(host, "available_memory_bytes", lambda: 3 * each)
    prepare.plan(CONFIG, reserve, place=Place(2, Rank(0, 2)))
    with pytest.raises(NotEnoughMemory):
        prepare.plan(CONFIG, reserve)


def test_a_worker_offers_several_nodes_if_it_can_start_ranks_there(monkeypatch):
    monkeypatch.setattr(extras, "MODULES", extras.MODULES | {"mpi": ("json",)})
    start = ["--launcher", sys.executable]

    def offered(*options: str) -> str | None:
        settings = parse([*options, "--label", "nodes=9"], {})
        return node.registration(settings, node.new_life(), "spool").labels["nodes"]

    assert offered("--nodes", "2", *start) == "2"
    assert offered(*start) == offered("--nodes", "2", "--launcher", "no-such-launcher") == "9"
    monkeypatch.setattr(extras, "MODULES", extras.MODULES | {"mpi": ("no_such_mpi",)})
    assert offered("--nodes", "2", *start) == "9"


def test_runs_on_different_numbers_of_nodes_are_not_pooled(make_result):
    config, one = TrainConfig().to_dict(), {"node": "n1", "cores": [0, 1]}
    environments: list[dict[str, int]] = [{}, {"nodes": 2}, {"nodes": 4}]
    assert "nodes" not in series_machine(one)
    assert len({series_key(config, one | more) for more in environments}) == 3
    processes = [Process(i, make_result([1.0, 1.0], environment=more), {}) for i, more in enumerate(environments)]
    assert environment_differences(processes) == ["nodes: null / 2 / 4"]
