"""Dependencies are derived from accesses, and the validator detects races."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpt2core.layers import attention
from gpt2core.layers.attention import heads_of_groups
from gpt2core.networks import program
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import ConfigError, GraphError
from gpt2core.spec.fields import FUSIONS, SYNCS
from gpt2core.spec.models import ModelConfig, model_from
from gpt2core.spec.phases import PHASES
from gpt2core.step import graph, paths, slicing
from gpt2core.step.ops import Access, Call, Mode, Op, Program, Region, Tile, Work, merged
from tests.support.dependencies import derived
from tests.support.reachability import reachability

R, W, U, C = Mode.READ, Mode.WRITE, Mode.UPDATE, Mode.REDUCE
SMALL = TrainConfig(
    model=ModelConfig(layers=2, heads=2, channels=32, vocab=61, context=16),
    batch=3, seq=10, batch_slice=2, token_slice=4, data="synthetic",
)  # fmt: skip


def one_region(*modes: Mode) -> list[list[Access]]:
    return [[Access(mode, 0)] for mode in modes]


@pytest.mark.parametrize(
    ("modes", "edges"),
    [
        ((W, R, R, W), [(0, 1), (0, 2), (0, 3), (1, 3), (2, 3)]),
        ((R, R, W), [(0, 2), (1, 2)]),
        ((U, U, R), [(0, 1), (1, 2)]),
        ((W, C, C, R), [(0, 1), (0, 2), (1, 3), (2, 3)]),
        ((C, C, W), [(0, 2), (1, 2)]),
        ((C, R, C), [(0, 1), (0, 2), (1, 2)]),
    ],
)
def test_dependencies_follow_from_accesses(modes, edges):
    assert derived(one_region(*modes)) == edges


def test_several_accesses_of_one_task_are_one():
    assert merged([Access(R, 0), Access(W, 0), Access(R, 1)]) == (Access(U, 0), Access(R, 1))
    assert merged([Access(W, 0), Access(R, 0), Access(U, 0)]) == (Access(W, 0),)
    with pytest.raises(GraphError, match="reduces region 0 and also accesses it in another mode"):
        merged([Access(C, 0), Access(R, 0)])


def reduced(nodes, edges):
    return list(paths.edges_of(paths.without_implied(paths.predecessors(nodes, edges))))


def test_transitive_edges_and_repeats_are_dropped():
    assert reduced(4, [(0, 1), (1, 2), (0, 2), (0, 1), (2, 3), (0, 3)]) == [(0, 1), (1, 2), (2, 3)]


def test_a_cycle_is_refused():
    with pytest.raises(GraphError, match="cycle"):
        reduced(2, [(1, 0)])


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 14), st.integers(0, 2**32))
def test_reduction_keeps_reachability_and_nothing_else(nodes, seed):
    rng = random.Random(seed)
    edges = [(a, b) for a in range(nodes) for b in range(a + 1, nodes) if rng.random() < 0.4]
    kept = reduced(nodes, edges)
    assert reachability(nodes, kept) == reachability(nodes, edges)
    for edge in kept:
        assert reachability(nodes, [e for e in kept if e != edge]) != reachability(nodes, edges)


@pytest.mark.parametrize("fusion", FUSIONS)
@pytest.mark.parametrize("sync", SYNCS)
@pytest.mark.parametrize(("batch_slice", "token_slice"), [(1, 4), (3, 10), (2, 3), (1, 1)])
def test_the_program_is_race_free(sync, batch_slice, token_slice, fusion):
    more: dict[str, Any] = {"grad_accum": 2, "grad_clip": 1.0} if fusion == "rows" else {}
    step = program.build(
        dataclasses.replace(SMALL, batch_slice=batch_slice, token_slice=token_slice, fusion=fusion, **more)
    )
    graph.validate(step, graph.build(step, sync))


STEP = program.build(SMALL)
GRAPH = graph.build(STEP, "step")
PROGRAMS = {
    "none": program.build(dataclasses.replace(SMALL, fusion="none", grad_clip=1.0)),
    "all": program.build(dataclasses.replace(SMALL, fusion="all")),
}


@pytest.mark.parametrize(
    ("fusion", "op"),
    [
        pytest.param(fusion, op, marks=[pytest.mark.slow] * (fusion == "none"))
        for fusion, step in PROGRAMS.items()
        for op in sorted({op.name for op in step.ops})
    ],
)
def test_without_any_one_edge_of_an_op_the_graph_is_refused(fusion, op):
    step = PROGRAMS[fusion]
    built, tasks = graph.build(step, "step"), step.tasks
    nodes = {n for n, number in enumerate(built.task) if number != graph.WAIT and tasks[number][0].name == op}
    real = {n for n, number in enumerate(built.task) if number != graph.WAIT}
    edges = [edge for edge in built.edges if set(edge) & nodes and set(edge) <= real]
    assert edges
    for edge in edges:
        without = dataclasses.replace(built, edges=tuple(e for e in built.edges if e != edge))
        with pytest.raises(GraphError, match="no path orders"):
            graph.validate(step, without)


def test_without_the_edge_to_the_next_iteration_the_graph_is_refused():
    with pytest.raises(GraphError, match="of the next iteration"):
        graph.validate(STEP, dataclasses.replace(GRAPH, crossing=()))


def toy(*accesses: tuple[Access, ...], constants: frozenset[int] = frozenset()) -> Program:
    tiles = tuple(Tile((Work((0,), 1, 1),), a, str(i)) for i, a in enumerate(accesses))
    return Program((Op(None, (Call("toy", "forward", toy, ()),), tiles),), (Region("x"), Region("y")), constants)


def test_tiles_of_one_op_may_not_conflict():
    with pytest.raises(GraphError, match="two tiles of toy conflict"):
        graph.build(toy((Access(W, 0),), (Access(W, 0),)), "step")
    graph.build(toy((Access(C, 0),), (Access(C, 0),)), "step")


def test_reading_what_nobody_writes_is_refused():
    with pytest.raises(GraphError, match="reads y, which no task writes"):
        graph.build(toy((Access(W, 0), Access(R, 1))), "step")
    graph.build(toy((Access(W, 0), Access(R, 1)), constants=frozenset({1})), "step")


def test_writing_a_constant_is_refused():
    with pytest.raises(GraphError, match="writes y, which is declared constant"):
        graph.build(toy((Access(W, 0), Access(W, 1)), constants=frozenset({1})), "step")


def test_phase_waits_stand_between_all_tasks_of_two_phases():
    waits = graph.build(STEP, "phase")
    reach = reachability(len(waits), waits.edges)
    order = {phase: i for i, phase in enumerate(("data", "forward", "loss", "backward", "update"))}
    nodes = [n for n, number in enumerate(waits.task) if number != graph.WAIT]
    for a in nodes:
        for b in nodes:
            if order[waits.phase[a]] < order[waits.phase[b]]:
                assert reach[a] >> b & 1


def test_attention_needs_only_earlier_slices_of_its_own_sequences():
    """The overlap that tasks exploit: slice 0's second layer does not wait for slice 1's first attention."""
    reach = reachability(len(GRAPH), GRAPH.edges)
    forward = {label: node for node, label in enumerate(GRAPH.label) if GRAPH.phase[node] == "forward"}
    assert reach[forward["qkv[0] s0"]] >> forward["attention[0] s1"] & 1
    assert not reach[forward["qkv[0] s1"]] >> forward["attention[0] s0"] & 1
    assert not reach[forward["attention[0] s1"]] >> forward["fc_projection+residual+layernorm[1] s0"] & 1
    assert not reach[forward["qkv[0] s0"]] >> forward["attention[0] s3"] & 1  # another group of sequences


@pytest.mark.parametrize(("heads", "parts"), [(1, 1), (3, 3), (12, 4)])
def test_attentions_backward_pass_has_a_tile_for_some_heads_of_a_group(heads, parts):
    """Each (group, head) is in one tile. A group of four slices has four tiles, or as many as there are heads."""
    cut = slicing.cut(TrainConfig(batch=3, seq=16, batch_slice=2, token_slice=4))
    grid = heads_of_groups(cut, heads)
    assert grid.labels[0] == {1: "s4-s7", 3: "s4-s7 h0-h0", 12: "s4-s7 h0-h2"}[heads]
    found = [
        (group, head)
        for group, (first, last) in zip(grid.ranges("group0:group1"), grid.ranges("head0:head1"), strict=True)
        for head in range(first, last)
    ]
    assert sorted(found) == [(group, head) for group in ((0, 32), (32, 48)) for head in range(heads)]
    assert len(grid) == 2 * parts
    whole = heads_of_groups(slicing.cut(TrainConfig(batch=3, seq=16, batch_slice=2, token_slice=16)), heads)
    assert whole.labels == ("s1", "s0")


def test_heads_that_overlap_are_refused(monkeypatch):
    def overlapping(slices, heads):
        grid = heads_of_groups(slices, heads)
        return grid.with_columns(head0=[max(0, first - 1) for first in grid.column("head0")])

    monkeypatch.setattr(attention, "heads_of_groups", overlapping)
    with pytest.raises(GraphError, match=r"two tiles of attention\[1\] conflict"):
        graph.build(program.build(SMALL), "step")


def test_heads_of_one_group_are_in_no_order():
    """Both heads' tiles may run at once, under every scheduler that follows the graph."""
    reach = reachability(len(GRAPH), GRAPH.edges)
    heads = [node for node, label in enumerate(GRAPH.label)
             if GRAPH.phase[node] == "backward" and label.startswith("attention[1] s0-")]  # fmt: skip
    assert len(heads) == 2
    assert not reach[heads[0]] >> heads[1] & 1
    modes = {access.mode for node in heads for access in STEP.tasks[GRAPH.task[node]][1].accesses}
    assert modes == {R, W}


def test_too_many_slices_are_refused():
    config = TrainConfig(model=model_from("tiny"), batch=64, seq=128, token_slice=1, batch_slice=1)
    with pytest.raises(ConfigError, match="token_slice = 1 is not accepted"):
        program.build(config)


def test_too_many_micro_batches_are_refused():
    config = TrainConfig(model=model_from("tiny"), batch=8, seq=64, batch_slice=1, token_slice=8, grad_accum=9)
    with pytest.raises(ConfigError, match="grad_accum = 9 is not accepted: at most 8 micro-batches of 64 slices"):
        program.build(config)


def test_micro_batches_wait_only_for_what_they_use_again():
    """The second one's forward pass may begin while weight gradients of the first are computed; there is one update."""
    step = program.build(dataclasses.replace(SMALL, grad_accum=2))
    found = graph.build(step, "step")
    graph.validate(step, found)
    node = {label: number for number, label in enumerate(found.label)}
    reach = reachability(len(found), found.edges)
    assert reach[node["qkv_dweight[0] qkvw b0"]] >> node["qkv_dweight[0] m1 qkvw b0"] & 1  # added in their order
    assert reach[node["logits_dweight wte b0"]] >> node["encoder+layernorm m1 s0"] & 1  # overwrites what it reads
    assert not reach[node["fc_dweight[0] fcw b0"]] >> node["qkv[0] m1 s0"] & 1
    assert sum(op.name == "adamw" for op in step.ops) == 1


@pytest.mark.parametrize("change", [{}, {"fusion": "none"}, {"grad_accum": 2, "grad_clip": 1.0}], ids=str)
def test_only_fillers_need_what_fillers_give(change):
    step = program.build(dataclasses.replace(SMALL, **change))
    given_by: dict[int, str] = {}
    for op, tile in step.tasks:
        for access in tile.accesses:
            if access.mode is not Mode.WRITE and access.region in given_by:
                assert op.filler, f"{op.label} needs what {given_by[access.region]} gives"
            if access.mode is not Mode.READ:
                given_by.pop(access.region, None)
                if op.filler:
                    given_by[access.region] = op.label
    names = {call.name for op in step.ops if op.filler for call in op.calls}
    assert {"logits_dweight", "encoder", "qkv_dweight", "layernorm_dweight", "adamw"} <= names
    chain = {call.name for op in step.ops if not op.filler for call in op.calls}
    assert not any("dweight" in name for name in chain)


def test_dot_names_every_node_and_edge():
    text = graph.dot(GRAPH)
    assert text.count("->") == len(GRAPH.edges) + len(GRAPH.crossing)
    assert 'label="attention[1] s0"' in text
    assert text.endswith("}\n")


def test_dot_draws_phases_without_a_colour(monkeypatch):
    known = graph.dot(GRAPH)
    monkeypatch.setattr(graph, "PHASES", (*PHASES, *(f"more {number}" for number in range(9))))
    assert graph.dot(GRAPH) == known
    phase = tuple("more 8" if name == "loss" else name for name in GRAPH.phase)
    drawn = graph.dot(dataclasses.replace(GRAPH, phase=phase))
    assert drawn.count('fillcolor="white"') == known.count('fillcolor="gold"') > 0
