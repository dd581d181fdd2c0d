"""The network reader: padding, what waits for what, inference, files of records (others: test_padded_words.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpt2core.data import cloze
from gpt2core.data.sources import write_tokens
from gpt2core.networks.network import network_of
from gpt2core.run import prepare, train
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import ConfigError, InputError
from gpt2core.spec.models import model_from
from gpt2core.step import slicing
from tests.support.networks import readers
from tests.support.networks.inferring import computed
from tests.support.networks.readers import ANSWERS, DOCUMENTS, MODEL, QUERIES

pytestmark = pytest.mark.usefixtures("no_canary")


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
