"""The network reader: every scheduler, PyTorch's losses, padding, declared accesses, inference, files."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpt2core.data import cloze
from gpt2core.data.sources import write_tokens
from gpt2core.gemm import libraries as gemm
from gpt2core.gemm import table
from gpt2core.networks import program
from gpt2core.networks.memory import memory_bytes, plan
from gpt2core.networks.network import model_in, network_of
from gpt2core.networks.reader.tensors import PRESETS
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
from tests.support.networks import cases, readers
from tests.support.networks.inferring import computed, halves_are_close
from tests.support.networks.readers import ANSWERS, DOCUMENTS, MODEL, QUERIES

GOLDEN = np.load(Path(__file__).parents[1] / "golden" / "reader.npz")["losses"]
SUMMED: dict[str, Any] = {"grad_accum": 2, "grad_clip": 0.5, "steps": 3}
FEW: list[dict[str, Any]] = [
    {"fusion": "none"},
    {"scheduler": "fork-join", "threads": 3, "assignment": "dynamic"},
    {"scheduler": "fork-join", "threads": 2, "fusion": "rows"},
    *({"scheduler": "task", "sync": sync, "threads": threads} for sync, threads in zip(SYNCS, (1, 3, 8), strict=True)),
]


@pytest.fixture(autouse=True, scope="module")
def no_canary() -> Iterator[None]:
    """Leave out the canary, which takes longer than these runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(canary, "UNAVAILABLE", "bits are compared, not times")
        yield


def test_training_follows_pytorch_with_the_same_bits_under_every_scheduler() -> None:
    """Losses of ten steps agree to a relative 1e-5 with those of a torch module, which tests/golden stores."""
    first = train.train(readers.config())
    np.testing.assert_allclose(first.losses, GOLDEN, rtol=1e-5)
    for how in FEW:
        result = train.train(readers.config(**how))
        assert (result.losses, result.weights_sha256) == (first.losses, first.weights_sha256), how
    assert GOLDEN[-1] < GOLDEN[0]
    for batch_slice, token_slice in ((5, 10), (1, 1)):
        other = train.train(readers.config(batch_slice=batch_slice, token_slice=token_slice))
        np.testing.assert_allclose(other.losses, GOLDEN, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("change", [{"steps": 3}, SUMMED], ids=str)
def test_all_schedulers_and_numbers_of_threads_give_the_same_bits(change: dict[str, Any]) -> None:
    fusions = FUSIONS if "grad_clip" not in change else FUSIONS[:2]
    fused = [{"scheduler": name, "threads": 2, "fusion": each} for name in ("fork-join", "task") for each in fusions]
    outcomes = {
        (tuple(result.losses), result.weights_sha256)
        for how in [*cases.HOW, *fused]
        for result in [train.train(readers.config(**change, **how))]
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
        results = [apart("bits", run_without_canary, readers.config(steps=3, **how)) for how in every]
    assert len({(tuple(result.losses), result.weights_sha256) for result in results}) == 1


def test_accumulated_and_clipped_gradients_have_the_same_bits_under_every_scheduler() -> None:
    first = train.train(readers.config(**SUMMED))
    for how in ({"scheduler": "fork-join", "threads": 2}, {"scheduler": "task", "threads": 3, "sync": "none"}):
        result = train.train(readers.config(**SUMMED, **how))
        assert (result.losses, result.weights_sha256) == (first.losses, first.weights_sha256), how


def test_products_in_bf16_have_the_same_bits_under_every_scheduler() -> None:
    how = {"precision": "bf16"}
    first = train.train(readers.config(**how))
    np.testing.assert_allclose(first.losses, GOLDEN, rtol=1e-2)
    for other in ({"scheduler": "fork-join", "threads": 2, "fusion": "rows"}, {"scheduler": "task", "threads": 3}):
        result = train.train(readers.config(**how, **other))
        assert (result.losses, result.weights_sha256) == (first.losses, first.weights_sha256), other


def test_a_loss_is_the_mean_over_all_answers_however_a_step_is_cut_into_batches() -> None:
    change = {"optimizer": "sgd", "lr": 0.1, "steps": 3, "batch_slice": 2}
    whole = train.train(readers.config(batch=6, **change))
    parts = train.train(readers.config(batch=2, grad_accum=3, **change))
    np.testing.assert_allclose(parts.losses, whole.losses, rtol=1e-6)
    np.testing.assert_allclose(parts.accuracy, whole.accuracy)


def test_padding_changes_neither_losses_nor_weights(tmp_path: Path) -> None:
    """More positions of both only add padding. Losses of later steps depend on the gradients of those before."""
    data = readers.write(tmp_path / "records")
    outcomes = []
    for seq, query in ((5, 5), (13, 9)):
        save, model = tmp_path / f"{seq}.safetensors", {**MODEL, "query": query}
        how = readers.config(data=data, seq=seq, token_slice=None, model=model, save=str(save), optimizer="sgd", lr=0.1)
        result = train.train(how)
        found = {spec.name: np.empty(spec.shape, np.float32) for spec in network_of(how).tensors(how)["weights"]}
        network_of(how).read(readers.config(checkpoint=str(save)), found)
        outcomes.append((result.losses, found))
    (losses, weights), (others, longer) = outcomes
    np.testing.assert_allclose(others, losses, rtol=1e-6)
    for name, array in weights.items():
        np.testing.assert_allclose(longer[name], array, rtol=1e-4, atol=1e-6, err_msg=name)


def test_every_two_tasks_that_conflict_are_ordered() -> None:
    for change in ({}, {"fusion": "none"}, SUMMED):
        for sync in SYNCS:
            step = program.build(readers.config(**change))
            graph.validate(step, graph.build(step, sync))


def test_document_and_query_do_not_wait_for_each_other() -> None:
    tasks = prepare.plan(readers.config(scheduler="task", fusion="none", batch_slice=5)).graph
    edges = {(tasks.label[a].split(" ")[0], tasks.label[b].split(" ")[0]) for a, b in tasks.edges
             if {tasks.phase[a], tasks.phase[b]} == {"forward"}}  # fmt: skip
    for way in ("", "_reverse"):
        assert {a for a, b in edges if b == f"recurrence_query{way}"} == {"gates_in_query"}
        assert {a for a, b in edges if b == f"recurrence_document{way}"} == {
            "gates_in_document", f"recurrence_document{way}",
        }  # fmt: skip
    assert {a for a, b in edges if b == "match"} == {
        f"recurrence_{name}{way}" for name in ("document", "query") for way in ("", "_reverse")
    }


@pytest.mark.parametrize(
    "how",
    [
        readers.config(steps=1, fusion="none"), readers.config(steps=1), readers.config(steps=1, precision="bf16"),
        readers.inference(steps=1, score=True),
        readers.inference(steps=1, score=True, precision="bf16"),
    ],
    ids=["none", "all", "bf16", "infer", "infer-bf16"],
)  # fmt: skip
def test_tasks_read_and_write_what_they_declare(how: TrainConfig) -> None:
    data = network_of(how).data(how)
    libraries = table.choose(gemm.load(how.blas, how.precision), [], prepare.silent)
    poison.check(program.build(how), plan(how), lambda memory: fill(memory, how, data), libraries)


def test_inference_has_the_probabilities_and_the_loss_of_training() -> None:
    training = slicing.resolve(readers.config(steps=1))
    found, losses = computed(training, "loss").arrays["probabilities"], computed(training, "backward").arrays["loss"]
    scored = computed(slicing.resolve(readers.inference(steps=1, score=True))).arrays
    assert np.array_equal(scored["probabilities"], found)
    assert np.array_equal(scored["loss"], losses)
    hashes = set()
    for how in ({"threads": 1}, {"scheduler": "fork-join", "threads": 2}, {"scheduler": "task", "threads": 3}):
        result = train.train(readers.inference(steps=3, **how))
        assert set(result.phase_s) == {"data", "forward"}
        hashes.add(result.outputs_sha256)
    assert len(hashes) == 1
    result = train.train(readers.inference(steps=3, score=True))
    assert (result.losses[0], result.accuracy[0]) == (np.mean(losses, dtype=np.float64), scored["right"].mean())


def test_inference_in_bf16_has_half_of_the_bytes_and_the_probabilities_within_a_percent() -> None:
    halves_are_close(readers.inference, "probabilities")


def test_its_memory_is_known_beforehand() -> None:
    for how in (readers.config(scheduler="task", threads=3), readers.config(**SUMMED), readers.inference(),
                readers.inference(precision="bf16")):  # fmt: skip
        planned = prepare.plan(how)
        assert planned.memory_bytes == memory_bytes(planned.config)
        assert run_memory_bytes(how) == sum(planned.memory_bytes.values())
    cbt = TrainConfig(model_from("reader-cbt"), 16, 400, threads=2)
    trained, inferred = (memory_bytes(how) for how in (cbt, dataclasses.replace(cbt, mode="infer")))
    assert inferred["activations"] < trained["activations"] / 2
    assert (inferred["gradients"], inferred["optimizer"]) == (0, 0)


def test_a_preset_is_a_model_by_name_and_has_defaults_of_its_own() -> None:
    config = TrainConfig.from_dict({"model": "reader-tiny"})
    assert TrainConfig.from_dict(config.to_dict()) == config
    spec = RunSpec.model_validate_json(RunSpec.model_validate(config.to_dict()).model_dump_json())
    assert TrainConfig.from_dict(spec.model_dump(exclude_none=True)) == config
    assert (config.model, config.data) == (PRESETS["reader-tiny"], "synthetic")


def test_a_file_has_the_model_and_the_same_weights(tmp_path: Path) -> None:
    first, second = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    one = train.train(readers.config(steps=1, save=str(first)))
    model = model_in(str(first))
    assert (model.network, model.embedding, model.hidden, model.vocab) == ("reader", 6, 5, 23)  # type: ignore[attr-defined]
    again = train.train(readers.config(steps=1, lr=0, weight_decay=0, checkpoint=str(first), save=str(second)))
    assert again.weights_sha256 == one.weights_sha256
    assert first.read_bytes() == second.read_bytes()
    with pytest.raises(ShapeMismatch, match=r"embedding.weight has shape \(23, 6\).* needs \(23, 8\)"):
        train.train(readers.config(model={**MODEL, "embedding": 8}, checkpoint=str(first)))
    with pytest.raises(ConfigError, match=r"ends in \.safetensors, the file format of a reader"):
        prepare.plan(readers.config(save=str(tmp_path / "c.bin")))


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"documents": DOCUMENTS[:4]}, "query.bin: 5 queries; .*document.bin has 4 documents"),
    ({"answers": ANSWERS[:4]}, "answer.bin: 4 answers; .*document.bin has 5 documents"),
    ({"documents": [*DOCUMENTS[:4], []]}, "document.bin: sequence 4 has no words"),
    ({"documents": [*DOCUMENTS[:4], [13] * 11]}, "document.bin: sequence 4 has 11 words; seq 10 leaves room for 10"),
    ({"queries": [*QUERIES[:4], [1, *[2] * 6]]}, "query.bin: sequence 4 has 7 words; the model's query 6 leaves room"),
    ({"queries": [*QUERIES[:4], [12, 14]]}, r"query.bin: sequence 4 has 0 missing words \(token 1\); expected 1"),
    ({"queries": [*QUERIES[:4], [1, 12, 1]]}, r"query.bin: sequence 4 has 2 missing words \(token 1\); expected 1"),
    ({"documents": [*DOCUMENTS[:4], [13, 1]]}, "document.bin: token 1 at index 17; words are from 2 on"),
    ({"answers": [*ANSWERS[:4], 0]}, "answer.bin: token 0 at index 4; words are from 2 on"),
    ({"answers": [*ANSWERS[:4], 9]}, "answer.bin: answer 4 is token 9, which document 4 does not contain"),
    ({"documents": [*DOCUMENTS[:4], [23, 13]]}, "document.bin: token 23 at index 16; the model's vocabulary has 23"),
    ({"documents": DOCUMENTS[:4], "queries": QUERIES[:4], "answers": ANSWERS[:4]}, "4 records; a batch needs 5"),
]


@pytest.mark.parametrize(("change", "reason"), WRONG)
def test_wrong_files_are_refused(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    data = readers.write(tmp_path / "records", **change)
    with pytest.raises(InputError, match=reason):
        cloze.open_records(readers.config(data=data))


def test_files_of_another_form_are_refused(tmp_path: Path) -> None:
    def refusal(data: str) -> str:
        with pytest.raises(InputError) as raised:
            cloze.open_records(readers.config(data=data))
        return str(raised.value)

    data, query = readers.write(tmp_path / "records"), tmp_path / "records" / cloze.QUERY
    write_tokens(query, np.array([1, 3]))
    assert refusal(data) == f"{query}: the last token is 3; expected 0, which ends a sequence"
    query.write_bytes(b"\x80" * 2000)
    assert str(query) in refusal(data)
    query.unlink()
    assert str(query) in refusal(data)
    assert cloze.DOCUMENT in refusal(f"cloze:{tmp_path / 'none'}")
    assert cloze.DOCUMENT in refusal(f"cloze:{tmp_path / 'records' / cloze.DOCUMENT}")


@pytest.mark.parametrize(
    ("settings", "field", "accepted"),
    [
        ({"data": "stdlib"}, "data", "synthetic or cloze:PATH"),
        ({"data": "cloze:"}, "data", "a folder with document.bin, query.bin and answer.bin"),
        ({"data": "pairs:x"}, "data", "network reader reads cloze"),
        ({"model": "seq2seq-tiny", "data": "cloze:x"}, "data", "network seq2seq reads pairs"),
        ({"model": "tiny", "data": "cloze:x"}, "data", "since network gpt2 reads tokens"),
        ({"model": {**MODEL, "query": 0}}, "model.query", "from 1 to"),
        ({"model": {**MODEL, "vocab": 2}}, "model.vocab", "from 3 to 65536"),
        ({"op_order": "diagonals"}, "op_order", "network reader does not read it"),
        ({"evaluate_every": 2}, "evaluate_every", "network reader does not read it"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, Any], field: str, accepted: str) -> None:
    with pytest.raises(ConfigError, match=accepted) as error:
        readers.config(**settings)
    assert field in {each.field for each in (error.value, *error.value.others)}


def test_inference_keeps_all_probabilities() -> None:
    for logits in ("last", "none-kept"):
        with pytest.raises(ConfigError, match="all, since the outputs of network reader are probabilities"):
            readers.inference(logits=logits)


def test_generated_records_have_their_answer_in_the_document() -> None:
    for seq in (1, 2, 10):
        found: Any = cloze.open_records(readers.config(seq=seq, token_slice=1))
        for document, query, answer, (length, words) in zip(*found, strict=True):
            assert max(1, seq // 2) <= length <= seq
            assert (document[:length] > 1).all()
            assert not document[length:].any()
            assert not query[words:].any()
            (missing,) = np.flatnonzero(query == 1)
            whole = np.where(query == 1, answer, query)[:words].tolist()
            assert missing < words
            assert whole in [document[at : at + words].tolist() for at in range(length + 1 - words)]
        longer: Any = cloze.open_records(readers.config(seq=seq, token_slice=1, steps=20))
        for some, every in zip(found, longer, strict=True):
            assert np.array_equal(some, every[: len(some)])


def test_training_on_generated_records_succeeds() -> None:
    """Documents of 6 to 12 words: the most frequent one is right in less than a third."""
    config = TrainConfig(model_from("reader-tiny"), 32, 12, steps=300, warmup=0, lr=0.02, data="synthetic", blas="own")
    accuracy = train.train(config).accuracy
    assert np.mean(accuracy[:25]) < 0.4
    assert np.mean(accuracy[-25:]) > 0.7


def test_a_goal_of_accuracy_ends_a_run() -> None:
    result = train.train(readers.config(stop_at="accuracy=0.2"))
    assert result.accuracy[len(result.losses) - 1] >= 0.2
