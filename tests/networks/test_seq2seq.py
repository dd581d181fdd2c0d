"""The network seq2seq: every scheduler, PyTorch's losses, padding, declared accesses, inference, files."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpt2core.data import pairs
from gpt2core.data.sources import write_tokens
from gpt2core.gemm import libraries as gemm
from gpt2core.gemm import table
from gpt2core.networks import program
from gpt2core.networks.memory import memory_bytes, plan
from gpt2core.networks.network import model_in, network_of
from gpt2core.networks.seq2seq.tensors import PRESETS
from gpt2core.run import canary, prepare, train
from gpt2core.run.fill import fill
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import ConfigError, InputError, ShapeMismatch
from gpt2core.spec.fields import FUSIONS, SYNCS
from gpt2core.spec.models import model_from
from gpt2core.spec.result import TrainResult
from gpt2core.step import graph, slicing
from taskloom.contract.runs import RunSpec
from taskloom.server.queue.experiments.memory import run_memory_bytes
from tests.support import poison
from tests.support.apart import processes
from tests.support.networks import cases, seq2seqs
from tests.support.networks.inferring import computed, halves_are_close
from tests.support.networks.seq2seqs import MODEL, SOURCES, TARGETS

GOLDEN = np.load(Path(__file__).parents[1] / "golden" / "seq2seq.npz")["losses"]
SUMMED: dict[str, Any] = {"grad_accum": 2, "grad_clip": 0.5, "steps": 3}
FEW: list[dict[str, Any]] = [
    {"fusion": "none"},
    {"scheduler": "fork-join", "threads": 3, "assignment": "dynamic"},
    {"scheduler": "fork-join", "threads": 2, "fusion": "rows"},
    *({"scheduler": "task", "sync": sync, "threads": threads} for sync, threads in zip(SYNCS, (1, 3, 8), strict=True)),
]
ROUNDING = 1e-6  # of the sum of exponentials, whose order is the compiler's


@pytest.fixture(autouse=True, scope="module")
def no_canary() -> Iterator[None]:
    """Leave out the canary, which takes longer than these runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(canary, "UNAVAILABLE", "bits are compared, not times")
        yield


def test_training_follows_pytorch_with_the_same_bits_under_every_scheduler() -> None:
    """Losses of ten steps agree to a relative 1e-5 with those of a torch module, which tests/golden stores."""
    first = train.train(seq2seqs.config())
    np.testing.assert_allclose(first.losses, GOLDEN, rtol=1e-5)
    for how in FEW:
        result = train.train(seq2seqs.config(**how))
        assert (result.losses, result.weights_sha256) == (first.losses, first.weights_sha256), how
    assert GOLDEN[-1] < GOLDEN[0]
    for batch_slice, token_slice in ((5, 10), (1, 1)):
        other = train.train(seq2seqs.config(batch_slice=batch_slice, token_slice=token_slice))
        np.testing.assert_allclose(other.losses, GOLDEN, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("change", [{"steps": 3}, SUMMED], ids=str)
def test_all_schedulers_and_numbers_of_threads_give_the_same_bits(change: dict[str, Any]) -> None:
    fusions = FUSIONS if "grad_clip" not in change else FUSIONS[:2]
    fused = [{"scheduler": name, "threads": 2, "fusion": each} for name in ("fork-join", "task") for each in fusions]
    outcomes = {
        (tuple(result.losses), result.weights_sha256)
        for how in [*cases.HOW, *fused]
        for result in [train.train(seq2seqs.config(**change, **how))]
    }
    assert len(outcomes) == 1


def run_without_canary(config: TrainConfig) -> TrainResult:
    canary.UNAVAILABLE = "bits are compared, not times"
    return train.train(config)


@pytest.mark.slow
def test_loops_and_tasks_of_openmp_give_the_same_bits() -> None:
    """In another process, which has no OpenMP runtime but the run's."""
    every = [
        {},
        {"scheduler": "omp-for", "threads": 2},
        {"scheduler": "omp-for", "threads": 2, "assignment": "dynamic"},
        *({"scheduler": "omp-task", "threads": 2, "sync": sync} for sync in SYNCS),
    ]
    with processes() as apart:
        results = [apart("bits", run_without_canary, seq2seqs.config(steps=3, **how)) for how in every]
    assert len({(tuple(result.losses), result.weights_sha256) for result in results}) == 1


def test_accumulated_and_clipped_gradients_have_the_same_bits_under_every_scheduler() -> None:
    first = train.train(seq2seqs.config(**SUMMED))
    for how in ({"scheduler": "fork-join", "threads": 2}, {"scheduler": "task", "threads": 3, "sync": "none"}):
        result = train.train(seq2seqs.config(**SUMMED, **how))
        assert (result.losses, result.weights_sha256) == (first.losses, first.weights_sha256), how


def test_products_in_bf16_have_the_same_bits_under_every_scheduler() -> None:
    how = {"precision": "bf16"}
    first = train.train(seq2seqs.config(**how))
    np.testing.assert_allclose(first.losses, GOLDEN, rtol=1e-2)
    for other in ({"scheduler": "fork-join", "threads": 2, "fusion": "rows"}, {"scheduler": "task", "threads": 3}):
        result = train.train(seq2seqs.config(**how, **other))
        assert (result.losses, result.weights_sha256) == (first.losses, first.weights_sha256), other


def test_a_loss_is_the_mean_over_all_words_however_a_step_is_cut_into_batches() -> None:
    change = {"optimizer": "sgd", "lr": 0.1, "steps": 3, "batch_slice": 2}
    whole = train.train(seq2seqs.config(batch=6, **change))
    parts = train.train(seq2seqs.config(batch=2, grad_accum=3, **change))
    np.testing.assert_allclose(parts.losses, whole.losses, rtol=1e-6)


def test_padding_changes_neither_losses_nor_weights(tmp_path: Path) -> None:
    """More positions only add padding. Losses of later steps depend on the gradients of those before."""
    data = seq2seqs.write(tmp_path / "pairs")
    outcomes = []
    for seq in (5, 13):
        save = tmp_path / f"{seq}.safetensors"
        how = seq2seqs.config(data=data, seq=seq, token_slice=None, save=str(save), optimizer="sgd", lr=0.1)
        result = train.train(how)
        found = {spec.name: np.empty(spec.shape, np.float32) for spec in network_of(how).tensors(how)["weights"]}
        network_of(how).read(seq2seqs.config(checkpoint=str(save)), found)
        outcomes.append((result.losses, found))
    (losses, weights), (others, longer) = outcomes
    np.testing.assert_allclose(others, losses, rtol=1e-6)
    for name, array in weights.items():
        np.testing.assert_allclose(longer[name], array, rtol=1e-4, atol=1e-6, err_msg=name)


def test_every_two_tasks_that_conflict_are_ordered() -> None:
    for change in ({}, {"fusion": "none"}, SUMMED):
        for sync in SYNCS:
            step = program.build(seq2seqs.config(**change))
            graph.validate(step, graph.build(step, sync))


def test_the_directions_of_the_encoder_do_not_wait_for_each_other() -> None:
    """Only a direction's chunks follow each other, forwards or backwards in time."""
    tasks = prepare.plan(seq2seqs.config(scheduler="task", fusion="none", batch_slice=5)).graph
    named = [(label, phase) for label, phase in zip(tasks.label, tasks.phase, strict=True)]
    edges = {(named[a][0], named[b][0]) for a, b in tasks.edges if {named[a][1], named[b][1]} == {"forward"}}
    within = {(a, b) for a, b in edges if a.startswith("recurrence_encoder") and b.startswith("recurrence_encoder")}
    assert within == {
        ("recurrence_encoder s0", "recurrence_encoder s1"), ("recurrence_encoder s1", "recurrence_encoder s2"),
        ("recurrence_encoder_reverse s2", "recurrence_encoder_reverse s1"),
        ("recurrence_encoder_reverse s1", "recurrence_encoder_reverse s0"),
    }  # fmt: skip


@pytest.mark.parametrize(
    "how",
    [
        seq2seqs.config(steps=1, fusion="none"), seq2seqs.config(steps=1), seq2seqs.config(steps=1, precision="bf16"),
        seq2seqs.inference(steps=1, score=True),
        seq2seqs.inference(steps=1, score=True, precision="bf16"),
    ],
    ids=["none", "all", "bf16", "infer", "infer-bf16"],
)  # fmt: skip
def test_tasks_read_and_write_what_they_declare(how: TrainConfig) -> None:
    data = network_of(how).data(how)
    libraries = table.choose(gemm.load(how.blas, how.precision), [], prepare.silent)
    poison.check(program.build(how), plan(how), lambda memory: fill(memory, how, data), libraries)


def test_inference_has_the_logits_and_the_loss_of_training() -> None:
    training = slicing.resolve(seq2seqs.config(steps=1))
    logits, losses = computed(training, "loss").arrays["logits"], computed(training, "backward").arrays["loss"]
    scored = computed(slicing.resolve(seq2seqs.inference(steps=1, score=True))).arrays
    assert np.array_equal(scored["logits"], logits)
    np.testing.assert_allclose(scored["loss"], losses, rtol=ROUNDING)
    found = set()
    for how in ({"threads": 1}, {"scheduler": "fork-join", "threads": 2}, {"scheduler": "task", "threads": 3}):
        result = train.train(seq2seqs.inference(steps=3, **how))
        assert set(result.phase_s) == {"data", "forward"}
        found.add(result.outputs_sha256)
    assert len(found) == 1


def test_inference_in_bf16_has_half_of_the_bytes_and_the_logits_within_a_percent() -> None:
    halves_are_close(seq2seqs.inference, "logits")


def test_its_memory_is_known_beforehand() -> None:
    for how in (seq2seqs.config(scheduler="task", threads=3), seq2seqs.config(**SUMMED), seq2seqs.inference(),
                seq2seqs.inference(precision="bf16")):  # fmt: skip
        planned = prepare.plan(how)
        assert planned.memory_bytes == memory_bytes(planned.config)
        assert run_memory_bytes(how) == sum(planned.memory_bytes.values())
    medium = TrainConfig(model_from("seq2seq-medium"), 16, 40, threads=2)
    trained, inferred = (memory_bytes(how) for how in (medium, dataclasses.replace(medium, mode="infer")))
    assert inferred["activations"] < trained["activations"] / 2
    assert (inferred["gradients"], inferred["optimizer"]) == (0, 0)


def test_a_preset_is_a_model_by_name_and_has_defaults_of_its_own() -> None:
    config = TrainConfig.from_dict({"model": "seq2seq-tiny"})
    assert TrainConfig.from_dict(config.to_dict()) == config
    spec = RunSpec.model_validate_json(RunSpec.model_validate(config.to_dict()).model_dump_json())
    assert TrainConfig.from_dict(spec.model_dump(exclude_none=True)) == config
    assert (config.model, config.data) == (PRESETS["seq2seq-tiny"], "synthetic")


def test_a_file_has_the_model_and_the_same_weights(tmp_path: Path) -> None:
    first, second = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    one = train.train(seq2seqs.config(steps=1, save=str(first)))
    model = model_in(str(first))
    assert (model.network, model.embedding, model.hidden, model.vocab) == ("seq2seq", 6, 10, 23)  # type: ignore[attr-defined]
    again = train.train(seq2seqs.config(steps=1, lr=0, weight_decay=0, checkpoint=str(first), save=str(second)))
    assert again.weights_sha256 == one.weights_sha256
    assert first.read_bytes() == second.read_bytes()
    with pytest.raises(ShapeMismatch, match=r"source_embedding.weight has shape \(23, 6\).* needs \(23, 8\)"):
        train.train(seq2seqs.config(model={**MODEL, "embedding": 8}, checkpoint=str(first)))
    with pytest.raises(ConfigError, match=r"ends in \.safetensors, the file format of a seq2seq"):
        prepare.plan(seq2seqs.config(save=str(tmp_path / "c.bin")))


@pytest.mark.parametrize(
    ("sources", "targets", "reason"),
    [
        (SOURCES[:4], TARGETS, "target.bin: 5 sequences; .*source.bin has 4"),
        ([*SOURCES[:4], []], TARGETS, "source.bin: sequence 4 has no words"),
        ([*SOURCES[:4], [2] * 10], TARGETS, "source.bin: sequence 4 has 10 words; seq 10 leaves room for 9"),
        (SOURCES, [*TARGETS[:4], [1]], "target.bin: token 1 at index 13; only the decoder begins with it"),
        ([*SOURCES[:4], [23]], TARGETS, "source.bin: token 23 at index 14; the model's vocabulary has 23"),
        (SOURCES[:4], TARGETS[:4], "4 pairs; a batch needs 5"),
    ],
)
def test_wrong_files_are_refused(tmp_path: Path, sources: list[list[int]], targets: list[list[int]], reason: str):
    data = seq2seqs.write(tmp_path / "pairs", sources, targets)
    with pytest.raises(InputError, match=reason):
        pairs.open_pairs(seq2seqs.config(data=data))


def test_files_of_another_form_are_refused(tmp_path: Path) -> None:
    def refusal(data: str) -> str:
        with pytest.raises(InputError) as raised:
            pairs.open_pairs(seq2seqs.config(data=data))
        return str(raised.value)

    data, target = seq2seqs.write(tmp_path / "pairs"), tmp_path / "pairs" / pairs.TARGET
    write_tokens(target, np.array([2, 3]))
    assert refusal(data) == f"{target}: the last token is 3; expected 0, which ends a sequence"
    target.write_bytes(b"\x80" * 2000)
    assert str(target) in refusal(data)
    target.unlink()
    assert str(target) in refusal(data)
    assert pairs.SOURCE in refusal(f"pairs:{tmp_path / 'none'}")
    assert pairs.SOURCE in refusal(f"pairs:{tmp_path / 'pairs' / pairs.SOURCE}")


@pytest.mark.parametrize(
    ("settings", "field", "accepted"),
    [
        ({"data": "stdlib"}, "data", "synthetic or pairs:PATH"),
        ({"data": "pairs:"}, "data", "a folder with source.bin and target.bin"),
        ({"model": "tiny", "data": "pairs:x"}, "data", "since network gpt2 reads tokens"),
        ({"model": {**MODEL, "hidden": 9}}, "model.hidden", "an even number"),
        ({"model": {**MODEL, "vocab": 2}}, "model.vocab", "from 3 to 65536"),
        ({"seq": 1, "token_slice": 1}, "seq", "2 or more, since network seq2seq has no shorter samples"),
        ({"op_order": "diagonals"}, "op_order", "network seq2seq does not read it"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, Any], field: str, accepted: str) -> None:
    with pytest.raises(ConfigError, match=accepted) as error:
        seq2seqs.config(**settings)
    assert field in {each.field for each in (error.value, *error.value.others)}


def test_inference_keeps_all_logits() -> None:
    for logits in ("last", "none-kept"):
        with pytest.raises(ConfigError, match="all, since the last positions of network seq2seq are padding"):
            seq2seqs.inference(logits=logits)


def test_generated_pairs_are_a_task_that_can_be_learned() -> None:
    for seq in (2, 10):
        found: Any = pairs.open_pairs(seq2seqs.config(seq=seq, token_slice=1))
        for source, target, (length, with_end) in zip(*found, strict=True):
            assert (source[:length] > 1).all()
            assert not source[length:].any()
            assert with_end == length + 1
            assert (target[:length] == source[:length][::-1]).all()
            assert not target[length:].any()
        longer: Any = pairs.open_pairs(seq2seqs.config(seq=seq, token_slice=1, steps=20))
        for some, every in zip(found, longer, strict=True):
            assert np.array_equal(some, every[: len(some)])
