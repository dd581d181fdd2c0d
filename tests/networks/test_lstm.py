"""The LSTM's step: its bits, its values, its accesses, its graph and its memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpt2core.data import sources
from gpt2core.gemm import libraries as gemm
from gpt2core.gemm import table
from gpt2core.networks import program
from gpt2core.networks.lstm.tensors import Lstm
from gpt2core.networks.memory import memory_bytes, plan
from gpt2core.networks.network import network_of
from gpt2core.run import prepare, train
from gpt2core.run.fill import fill
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import ConfigError
from gpt2core.spec.fields import FUSIONS, OP_ORDERS, SYNCS
from gpt2core.step import slicing
from gpt2core.step.memory import Memory
from taskloom.contract.runs import RunSpec
from taskloom.server.queue.experiments.memory import run_memory_bytes
from tests.support import poison
from tests.support.networks import lstms

GOLDEN = Path(__file__).parents[1] / "golden"
CASES = pytest.mark.parametrize("case", lstms.CASES)
FUSED = {"lstm": FUSIONS, "lstm_tied": ("none", "rows"), "lstm_carried": FUSIONS}
HOW: list[dict[str, Any]] = [
    *({"scheduler": "fork-join", "threads": threads} for threads in (1, 2, 3, 8)),
    {"scheduler": "fork-join", "threads": 3, "assignment": "dynamic"},
    *({"scheduler": scheduler, "threads": threads, "op_order": "diagonals"}
      for scheduler in ("fork-join", "task") for threads in (1, 3)),
    *({"scheduler": "task", "sync": sync, "threads": threads} for sync in SYNCS for threads in (1, 2, 3, 8)),
]  # fmt: skip
SUMMED: dict[str, Any] = {"grad_accum": 2, "grad_clip": 0.5}


def allowed(case: str, how: dict[str, Any]) -> dict[str, Any]:
    """Settings without grad_accum where the state is carried over."""
    return {name: value for name, value in how.items() if case != "lstm_carried" or name != "grad_accum"}


pytestmark = pytest.mark.usefixtures("no_canary")


@CASES
@pytest.mark.parametrize("how", [{}, SUMMED, {"precision": "bf16"}], ids=str)
def test_every_scheduler_gives_the_same_bits(case: str, how: dict[str, Any]) -> None:
    how = allowed(case, how)
    first = train.train(lstms.config(case, steps=3, **how))
    fusions = FUSED[case] if "grad_clip" not in how else ("none", "rows")
    fused = [{"fusion": f, "scheduler": s, "threads": 2} for f in fusions for s in ("fork-join", "task")]
    fused += [{**each, "op_order": "diagonals"} for each in fused[::2]]
    others = [*(HOW[2::4] if how else HOW), *fused]
    for other in others:
        result = train.train(lstms.config(case, steps=3, **{**how, **other}))
        assert (result.losses, result.weights_sha256) == (first.losses, first.weights_sha256), other


@CASES
@pytest.mark.parametrize("threads", [1, 3])
def test_training_follows_pytorch(case: str, threads: int) -> None:
    """Losses of ten steps agree to a relative 1e-5 with those of torch.nn.LSTM, which tests/golden stores."""
    golden = np.load(GOLDEN / f"{case}.npz")
    result = train.train(lstms.config(case, scheduler="task", threads=threads))
    np.testing.assert_allclose(result.losses, golden["losses"], rtol=1e-5)
    assert result.losses[-1] < 0.98 * result.losses[0]


@CASES
def test_slices_change_only_the_rounding(case: str) -> None:
    golden = np.load(GOLDEN / f"{case}.npz")
    for batch_slice, token_slice in ((1, 1), (5, 10), (3, 7)):
        result = train.train(lstms.config(case, batch_slice=batch_slice, token_slice=token_slice))
        np.testing.assert_allclose(result.losses, golden["losses"], rtol=1e-5)


def test_a_sequence_of_one_token_has_no_recurrence() -> None:
    """The recurrent weights' gradient is 0, and decay alone changes them."""
    how: dict[str, Any] = {"seq": 1, "token_slice": 1, "steps": 2, "weight_decay": 0.0}
    hashes = {train.train(lstms.config(fusion=fusion, **how)).weights_sha256 for fusion in FUSIONS}
    assert len(hashes) == 1
    assert all(np.isfinite(train.train(lstms.config(**how)).losses))


@CASES
@pytest.mark.parametrize(
    "how",
    [*({"fusion": fusion, "grad_clip": 0.0} for fusion in FUSIONS), SUMMED,
     {"precision": "bf16"}, {"seq": 1, "token_slice": 1}, {"op_order": "diagonals"}, {"unit_slice": 5}],
    ids=str,
)  # fmt: skip
def test_tasks_read_and_write_what_they_declare(case: str, how: dict[str, Any]) -> None:
    config = lstms.config(case, steps=1, **allowed(case, how))
    data = network_of(config).data(config)
    libraries = table.choose(gemm.load(config.blas, config.precision), [], lambda _: None)
    poison.check(program.build(config), plan(config), lambda memory: fill(memory, config, data), libraries)


@pytest.mark.parametrize("fusion", FUSIONS)
def test_layers_and_chunks_form_a_wavefront(fusion: str) -> None:
    """A chunk of a layer waits for its neighbours in time and for its chunk of the layer below, and for no other."""
    planned = prepare.plan(lstms.config(scheduler="task", fusion=fusion))
    label = planned.graph.label

    def next_of(name: str) -> set[str]:
        return {label[after] for before, after in planned.graph.edges if label[before] == name}

    if fusion == "none":  # the reverse of s4, which has the same name, is followed by that of s3
        assert next_of("recurrence[1] s4") >= {"recurrence[1] s5", "gates_in[2] s4", "recurrence[1] s3"}
        assert next_of("gates_in[1] s4") == {"recurrence[1] s4"}
        chunks = {each for each in next_of("recurrence[1] s4") if each.startswith(("recurrence[", "gates_in["))}
        assert len(chunks) == 3
    else:
        chunks = {each for each in next_of("gates_in+recurrence[1] s4") if each.startswith("gates_in+")}
        assert chunks == {"gates_in+recurrence[1] s5", "gates_in+recurrence[2] s4"}
        back = {each for each in next_of("recurrence+gates_in_dinp[1] s4") if each.startswith("recurrence+")}
        assert back == {"recurrence+gates_in_dinp[1] s3", "recurrence+gates_in_dinp[0] s4"}


def edges_by_label(config: TrainConfig) -> tuple[set[tuple[str, ...]], ...]:
    """The edges within a step and those to the next one, between tasks' labels and phases."""
    graph = prepare.plan(config).graph
    name = [f"{label} {phase}" for label, phase in zip(graph.label, graph.phase, strict=True)]
    return {(name[a], name[b]) for a, b in graph.edges}, {(name[a], name[b]) for a, b in graph.crossing}


@CASES
@pytest.mark.parametrize("sync", SYNCS)
def test_both_orders_of_ops_have_the_same_edges(case: str, sync: str) -> None:
    for fusion in FUSED[case]:
        one, other = (
            edges_by_label(lstms.config(case, scheduler="task", sync=sync, fusion=fusion, op_order=order))
            for order in OP_ORDERS
        )
        assert one == other
        assert len(one[0]) > 100


def test_blocks_of_units_have_the_same_edges_in_both_orders() -> None:
    """Each block of a time waits for all blocks of the time before, and layers still form a wavefront."""
    how: dict[str, Any] = {"scheduler": "task", "unit_slice": 4}
    one, other = (edges_by_label(lstms.config(**how, op_order=order)) for order in OP_ORDERS)
    assert one == other
    before = {a for a, b in one[0] if b == "recurrence[1] s1 t5 u2 forward"}
    assert before == {f"recurrence[1] s1 t4 u{block} forward" for block in range(3)}
    first = {a for a, b in one[0] if b == "recurrence[1] s1 t4 u0 forward" and a.startswith("gates_in")}
    assert first == {"gates_in[1] s1 forward"}


@pytest.mark.parametrize("how", [{}, {"precision": "bf16"}], ids=str)
def test_blocks_of_units_give_the_same_bits_under_every_scheduler(how: dict[str, Any]) -> None:
    """9 units in blocks of 4: the last one has one unit."""
    how = {"unit_slice": 4, "steps": 3, **how}
    first = train.train(lstms.config("lstm_carried", **how))
    others = [
        {"scheduler": "fork-join", "threads": 3, "op_order": "diagonals"},
        {"scheduler": "fork-join", "threads": 2, "fusion": "none"},
        {"scheduler": "task", "threads": 8, "fusion": "rows", "op_order": "diagonals"},
        *({"scheduler": "task", "sync": sync, "threads": each} for each, sync in enumerate(SYNCS, 1)),
    ]
    for other in others:
        result = train.train(lstms.config("lstm_carried", **{**how, **other}))
        assert (result.losses, result.weights_sha256) == (first.losses, first.weights_sha256), other


@CASES
@pytest.mark.parametrize("unit_slice", [1, 4])
def test_blocks_of_units_change_only_the_rounding(case: str, unit_slice: int) -> None:
    golden = np.load(GOLDEN / f"{case}.npz")
    result = train.train(lstms.config(case, unit_slice=unit_slice))
    np.testing.assert_allclose(result.losses, golden["losses"], rtol=1e-5)


@pytest.mark.parametrize("unit_slice", [60, 48])
def test_blocks_of_several_panels_compute_the_same(unit_slice: int) -> None:
    """A block's gates are packed one after the other, and the last block is smaller."""
    model = {"network": "lstm", "embedding": 8, "hidden": 100, "layers": 1, "vocab": 61}
    whole = train.train(lstms.config(model=model, steps=4))
    result = train.train(lstms.config(model=model, steps=4, unit_slice=unit_slice))
    np.testing.assert_allclose(result.losses, whole.losses, rtol=1e-6)


def test_diagonals_are_the_wavefront_written_by_hand() -> None:
    """Chunk c of layer k is in loop k + c: 3 layers and 3 chunks need 5 barriers instead of 9 in either pass."""
    loops = {order: prepare.plan(lstms.config(op_order=order)).program.loops for order in OP_ORDERS}
    chunks = {"s0": 0, "s3": 0, "s6": 0, "s1": 1, "s4": 1, "s7": 1, "s2": 2, "s5": 2, "s8": 2}
    for op, back in (("gates_in+recurrence", False), ("recurrence+gates_in_dinp", True)):
        found = {order: [loop for loop in each if loop[0].name == op] for order, each in loops.items()}
        assert {order: len(each) for order, each in found.items()} == {"layers": 9, "diagonals": 5}
        for number, loop in enumerate(found["diagonals"]):
            sums = {chunks[tile.label] + (each.layer or 0) for each in loop for tile in each.tiles}
            assert sums == {4 - number if back else number}


@CASES
@pytest.mark.parametrize("unit_slice", [None, 4])
def test_a_server_knows_its_configuration_and_its_memory(case: str, unit_slice: int | None) -> None:
    config = lstms.config(case, scheduler="task", threads=3, unit_slice=unit_slice)
    spec = RunSpec.model_validate_json(RunSpec.model_validate(config.to_dict()).model_dump_json())
    assert TrainConfig.from_dict(spec.model_dump(exclude_none=True)) == config
    planned = prepare.plan(config)
    arenas = Memory(plan(config)).arenas
    assert run_memory_bytes(config) == sum(arena.nbytes for arena in arenas.values())
    assert planned.memory_bytes == memory_bytes(config)


def test_step_flop_is_six_per_weight_of_a_product() -> None:
    model = Lstm(12, 9, 3, 61)
    assert model.step_flop(2, 5) == 6 * 10 * (4 * 9 * (12 + 9) + 2 * 4 * 9 * (9 + 9) + 9 * 61)
    tied = Lstm(9, 9, 1, 61, tied=True)
    assert tied.step_flop(1, 1) == 6 * (4 * 9 * 18 + 9 * 61)


@pytest.mark.parametrize("name", ["lstm-tiny", "lstm-medium", "lstm-large", "lstm-deep"])
def test_presets_are_models_by_name(name: str) -> None:
    config = TrainConfig.from_dict({"model": name, "seq": 8})
    assert config.model.name == name
    assert TrainConfig.from_dict(config.to_dict()) == config
    assert config.to_dict()["model"]["network"] == "lstm"


@pytest.mark.parametrize(
    ("sizes", "field", "accepted"),
    [
        ({"hidden": 0}, "model.hidden", "1 to 65536"),
        ({"vocab": 65537}, "model.vocab", "1 to 65536"),
        ({"tied": 1}, "model.tied", "true or false"),
        ({"tied": True, "hidden": 8, "embedding": 9}, "model.embedding", r"hidden \(8\), since the lstm's head"),
        ({"heads": 4}, "model.heads", "no such setting of lstm; known: embedding, hidden, layers"),
    ],
)
def test_sizes_that_are_refused(sizes: dict[str, Any], field: str, accepted: str) -> None:
    with pytest.raises(ConfigError, match=accepted) as raised:
        TrainConfig.from_dict({"model": {"network": "lstm", **sizes}})
    assert raised.value.field == field


def test_initial_weights_are_torchs_distributions() -> None:
    config = lstms.config()
    weights = {spec.name: np.empty(spec.shape, np.float32) for spec in network_of(config).tensors(config)["weights"]}
    network_of(config).initialise(config, weights)
    for name, array in weights.items():
        if name != "embedding":
            assert 0.8 / 3 < np.abs(array).max() <= 1 / 3, name
            assert array.min() < 0 < array.max()
    assert 0.9 < weights["embedding"].std() < 1.1
    again = {name: np.empty_like(array) for name, array in weights.items()}
    network_of(config).initialise(config, again)
    assert all(np.array_equal(weights[name], again[name]) for name in weights)


def test_init_scale_is_the_limit_of_every_weight() -> None:
    config = lstms.config(init_scale=0.05)
    weights = {spec.name: np.empty(spec.shape, np.float32) for spec in network_of(config).tensors(config)["weights"]}
    network_of(config).initialise(config, weights)
    for name, array in weights.items():
        assert 0.04 < np.abs(array).max() <= np.float32(0.05), name


def test_a_carried_state_continues_the_previous_batch(tmp_path: Path) -> None:
    """Without an update, two batches of 5 tokens have the losses of one batch of 10, whose samples are the same."""
    path = str(tmp_path / "tokens.bin")
    how: dict[str, Any] = {"lr": 0.0, "token_slice": 2, "carry_state": True, "data": path}
    stream = np.random.default_rng(3).integers(61, size=5 * 10 + 1, dtype=np.uint16)
    sources.write_tokens(path, stream)
    long = train.train(lstms.config(**how, steps=1)).losses
    short = train.train(lstms.config(**how, seq=5, steps=2)).losses
    assert np.mean(short) == pytest.approx(long[0], rel=1e-6)
    from_zero = train.train(lstms.config(**{**how, "carry_state": False}, steps=1)).losses
    assert from_zero == pytest.approx(long, rel=1e-6)  # a first batch's parts are its sequences


@pytest.mark.parametrize(
    ("given", "field", "accepted"),
    [
        ({"model": "lstm-tiny", "carry_state": True, "grad_accum": 2}, "carry_state", r"false with grad_accum \(2\)"),
        ({"model": "tiny", "carry_state": True}, "carry_state", "default False, since network gpt2 does not read it"),
        ({"model": "tiny", "init_scale": 0.1}, "init_scale", "default 0.0, since network gpt2 does not read it"),
        ({"model": "lstm-tiny", "init_scale": -0.1}, "init_scale", "0 or more"),
        ({"model": "tiny", "op_order": "diagonals"}, "op_order", "'layers', since network gpt2 does not read it"),
        ({"model": "lstm-tiny", "op_order": "rows"}, "op_order", "one of layers, diagonals"),
        ({"model": "tiny", "unit_slice": 8}, "unit_slice", "the default None, since network gpt2 does not read it"),
        ({"model": "resnet20", "unit_slice": 8}, "unit_slice", "since network resnet does not read it"),
        ({"model": "lstm-tiny", "unit_slice": 33}, "unit_slice", r"1 to hidden \(32\)"),
        ({"model": "lstm-tiny", "unit_slice": 0}, "unit_slice", "1 or more"),
        ({"model": "lstm-large", "unit_slice": 1}, "unit_slice", r"47 to hidden \(1500\), since each block of a time"),
        ({"model": "lstm-tiny", "init_scale": 0.1, "checkpoint": "x"}, "init_scale", "0 with checkpoint"),
    ],
)
def test_settings_of_states_and_scales_that_are_refused(given: dict[str, Any], field: str, accepted: str) -> None:
    with pytest.raises(ConfigError, match=accepted) as raised:
        TrainConfig.from_dict(given)
    assert raised.value.field == field


def test_a_time_steps_rows_are_consecutive() -> None:
    config = lstms.config()
    sample, position = slicing.row_tables(config, time_major=True)
    for part in slicing.cut(config):
        rows = [(t, b) for t in range(part.pos0, part.pos1) for b in range(part.sample0, part.sample1)]
        assert list(zip(position, sample, strict=True))[part.row0 : part.row1] == rows
