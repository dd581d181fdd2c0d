"""What ranks exchange, and the steps of ranks, without MPI: every element has one owner, messages meet, no races."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import itertools
import os
import resource
import sys
from collections import Counter

import pytest

from gpt2core.networks import program
from gpt2core.networks.exchanged import layout_of
from gpt2core.networks.memory import plan
from gpt2core.process import launch, ranks
from gpt2core.ranks.layout import LINE, Layout, layout
from gpt2core.run.train import plan_event
from gpt2core.spec import extras
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import ConfigError, MachineError
from gpt2core.spec.extras import NotInstalled
from gpt2core.spec.fields import SYNCS
from gpt2core.step import graph
from gpt2core.step.parameters import Parameter
from gpt2core.step.rank import Rank
from taskloom import local_run, train_tables

MODELS = {
    "gpt2": {"layers": 2, "heads": 2, "channels": 32, "vocab": 61, "context": 16},
    "lstm": {"network": "lstm", "embedding": 12, "hidden": 9, "layers": 2, "vocab": 61, "context": 16},
    "resnet": {"network": "resnet", "blocks": 1, "width": 5, "classes": 7, "side": 9},
    "seq2seq": {"network": "seq2seq", "embedding": 6, "hidden": 10, "vocab": 23, "context": 16},
    "reader": {"network": "reader", "embedding": 6, "hidden": 5, "vocab": 23, "query": 4, "context": 16},
}


def config(network: str = "gpt2", **settings: object) -> TrainConfig:
    more = {} if network == "resnet" else {"seq": 10, "token_slice": 4, "data": "synthetic"}
    return TrainConfig.from_dict({"model": MODELS[network], "batch": 6, "batch_slice": 1, **more, **settings})


@pytest.mark.parametrize("network", MODELS)
@pytest.mark.parametrize("count", [2, 3, 6])
def test_each_weight_has_one_owner(network, count):
    wish = config(network, ranks=count)
    specs = plan(wish)["weights"]
    covered: Counter[int] = Counter()
    for rank in range(count):
        for _, parts in layout_of(wish, rank).mine():
            for _, (first, last) in parts:
                covered.update(range(first, last))
    ends = ((at // 4, spec.size) for spec, at in zip(specs.specs, specs.offsets, strict=True))
    inside = [i for at, size in ends for i in range(at, at + size)]
    assert covered == Counter(inside)


@pytest.mark.parametrize("network", MODELS)
@pytest.mark.parametrize("count", [2, 3, 6])
def test_a_rank_keeps_the_optimizers_state_of_its_shards_alone(network, count):
    wish, momentum = config(network, ranks=count), 2 if network != "resnet" else 1
    shard, whole = layout_of(wish, 0).shard_elements, plan(config(network))["optimizer"].bytes
    pieces = sum(len(bucket.pieces) for bucket in layout_of(wish, 0).buckets)
    for rank in range(count):
        specs = plan(wish, rank)["optimizer"].specs
        assert [spec.shape for spec in specs] == [(shard,)] * momentum
        kept: Counter[int] = Counter()
        for _, parts in layout_of(wish, rank).mine():
            for piece, (first, last) in parts:
                at = piece.kept + first - piece.shard(rank)[0]
                kept.update(range(at, at + last - first))
        assert set(kept.values()) == {1}
        assert max(kept) < shard
    assert shard <= whole / (4 * momentum * count) + LINE * pieces


def layouts(count: int) -> list[Layout]:
    parameters = [Parameter("tiny", ((0, 3),), 0), Parameter("matrix", ((16, 1016), (1024, 1074)), 0)]
    return [layout(parameters, Rank(rank, count), limited=True) for rank in range(count)]


@pytest.mark.parametrize("count", [2, 3, 7, 64])
def test_messages_meet_in_their_order(count):
    """What one rank sends to another one under a tag has the sizes that the other one expects, in the same order."""
    every = layouts(count)
    for one, other in itertools.permutations(every, 2):
        sent = [(m.tag, m.elements) for m in one.messages if not m.receives and m.peer == other.rank.number]
        expected = [(m.tag, m.elements) for m in other.messages if m.receives and m.peer == one.rank.number]
        assert sent == expected


@pytest.mark.parametrize("count", [2, 3, 7])
def test_what_is_received_does_not_overlap(count):
    for one in layouts(count):
        (size,) = next(spec.shape for spec in one.specs() if spec.name == "received")
        places = Counter[int]()
        for messages in one.by_kind["gradients"]:
            for message in messages:
                if message.receives:
                    places.update(range(message.offset, message.offset + message.elements))
        assert set(places.values()) == {1}
        assert max(places) < size


@pytest.mark.parametrize("network", MODELS)
@pytest.mark.parametrize(("scheduler", "grad_clip"), [("task", 0.0), ("task", 1.0), ("omp-task", 1.0)])
def test_every_step_of_a_rank_is_free_of_races(network, scheduler, grad_clip):
    wish = config(network, ranks=2, scheduler=scheduler, grad_clip=grad_clip)
    for rank, sync in itertools.product(range(2), SYNCS):
        step = program.build(wish, rank=rank)
        graph.validate(step, graph.build(step, sync))


def test_tasks_that_hold_their_threads_wait_only_when_all_messages_are_on_their_way():
    for scheduler, in_turn in (("task", False), ("omp-task", True)):
        tasks = graph.build(program.build(config(ranks=2, scheduler=scheduler)), "step")
        named = {name: [n for n, label in enumerate(tasks.label) if label.startswith(name)]
                 for name in ("gradients_send", "gradients_arrived")}  # fmt: skip
        after: dict[int, set[int]] = {}
        for node in reversed(range(len(tasks))):
            after[node] = {node}.union(*(after[b] for a, b in tasks.edges if a == node))
        ordered = all(set(named["gradients_arrived"]) <= after[node] for node in named["gradients_send"])
        assert ordered is in_turn


def test_no_op_of_several_ranks_is_a_filler():
    assert any(op.filler for op in program.build(config(fusion="rows")).ops)
    assert not any(op.filler for op in program.build(config(ranks=2)).ops)


def test_a_rank_computes_a_part():
    one, part = config(grad_accum=2), config(grad_accum=2, ranks=3).part
    assert (part.batch, part.grad_accum, part.ranks) == (2, 6, 1)
    assert part.tokens_per_step == one.tokens_per_step
    assert plan(config(ranks=3))["activations"].bytes < plan(config(fusion="rows"))["activations"].bytes
    assert one.part is one


@pytest.mark.parametrize(("settings", "field", "accepted"), [
    ({"ranks": 4}, "ranks", r"a divisor of batch \(6\)"),
    ({"ranks": 0}, "ranks", "1 to 4096"),
    ({"ranks": 2, "batch_slice": 4}, "batch_slice", r"1 to batch \(6\) / ranks \(2\)"),
    ({"ranks": 2, "fusion": "all"}, "fusion", "none or rows"),
    ({"ranks": 2, "model": MODELS["lstm"], "carry_state": True}, "carry_state", r"the default False with ranks \(2\)"),
    ({"ranks": 2, "mode": "infer"}, "ranks", "the default 1, since mode infer computes no gradient"),
    ({"ranks": 2, "threads": 2, "cores": "0-2"}, "threads", r"cores given \(3\) / ranks \(2\)"),
    ({"ranks": 3, "batch": 6, "cores": "0-1"}, "ranks", r"at most the number of cores given \(2\)"),
    ({"ranks": 2, "grad_accum": 4096}, "ranks", r"at most 4096 / grad_accum \(4096\)"),
])  # fmt: skip
def test_what_several_ranks_do_not_support_is_refused(settings, field, accepted):
    with pytest.raises(ConfigError, match=accepted) as refused:
        config(**settings)
    assert field in {refused.value.field, *(other.field for other in refused.value.others)}


def test_a_missing_library_is_named_in_a_sentence(monkeypatch, tmp_path):
    monkeypatch.setattr(extras, "MODULES", extras.MODULES | {"mpi": ("no_such_mpi",)})
    with pytest.raises(NotInstalled, match=r"install taskloom\[mpi\]"):
        launch.command(tmp_path / "result.json", ranks=2)
    monkeypatch.setattr(extras, "MODULES", extras.MODULES | {"mpi": ("json",)})
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(ranks, "LIBRARIES", ("no-such-mpi",))
    with pytest.raises(MachineError, match="ranks = 2 needs mpiexec, which is neither in"):
        launch.command(tmp_path / "result.json", ranks=2)
    mpiexec = tmp_path / "mpiexec"
    mpiexec.touch(0o600)
    with pytest.raises(MachineError, match="mpiexec cannot be started: Permission denied"):
        launch.command(tmp_path / "result.json", ranks=2)
    mpiexec.chmod(0o700)
    mpiexec.write_text("#!/bin/sh\necho HYDRA build details:\n")
    command = launch.command(tmp_path / "result.json", ranks=2)
    assert command[:7] == [str(mpiexec), "-launcher", "fork", "-hosts", "localhost", "-n", "2"]
    assert command[-2:] == ["--ranks", "2"]
    mpiexec.write_text("#!/bin/sh\necho 'mpiexec (Open MPI) 5.0.11'\n")
    command = launch.command(tmp_path / "result.json", ranks=2)
    assert command[3:5] == ["gpt2core.process.guard", str(mpiexec)]
    assert ("--allow-run-as-root" in command) is (os.geteuid() == 0)
    assert command[command.index("--host") :][:4] == ["--host", "localhost:2", "-n", "2"]
    mpiexec.write_text("#!/bin/sh\necho 'mpiexec (Open MPI) 4.1.4'\n")
    with pytest.raises(MachineError, match=r"needs Open MPI 5 or later, or MPICH; .*mpiexec is of Open MPI 4"):
        launch.command(tmp_path / "result.json", ranks=2)
    installed = [each.name for each in itertools.islice(importlib.metadata.distributions(), 2)]
    monkeypatch.setattr(ranks, "LIBRARIES", tuple(installed))
    with pytest.raises(MachineError, match="needs one MPI library, but this environment contains"):
        launch.command(tmp_path / "result.json", ranks=2)


def test_missing_shared_memory_is_named_in_a_sentence(monkeypatch, tmp_path):
    monkeypatch.setattr(extras, "MODULES", extras.MODULES | {"mpi": ("json",)})
    monkeypatch.setattr(ranks, "SHARED", tmp_path / "shm")
    need = f"ranks = 2 needs 24 MiB of shared memory, which cannot be written to {tmp_path}/shm: "
    with pytest.raises(MachineError, match=f"^{need}No such file or directory; .*--shm-size"):
        launch.command(tmp_path / "result.json", ranks=2)
    (tmp_path / "shm").mkdir()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16 << 20, before[1]))
    try:
        with pytest.raises(MachineError, match=f"^{need}File too large; .*--shm-size"):
            launch.command(tmp_path / "result.json", ranks=2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_more_ranks_than_cores_of_this_machine_are_refused_by_their_name():
    many = 4096
    with pytest.raises(ConfigError, match=r"ranks = 4096 is not accepted: at most the \d+ cores this process may use"):
        local_run.check_cores(config(ranks=many, batch=many))


def test_a_plan_tells_that_its_memory_is_that_of_each_rank():
    planned = plan_event(config(ranks=2, allow_oversubscription=True))
    assert planned["ranks"] == 2
    assert planned["memory_bytes_by_mode"] == {"train": planned["memory_bytes"]}
    assert train_tables.plan(planned)[1].title == "MiB of each rank"
    assert "ranks" not in plan_event(config())


def test_a_setting_at_its_default_is_no_rank():
    assert dataclasses.replace(config(ranks=2), ranks=1) == config()
