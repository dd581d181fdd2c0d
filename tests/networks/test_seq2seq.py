"""The network seq2seq: padding, what waits for what, inference, files of pairs (others: test_padded_words.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpt2core.data import pairs
from gpt2core.data.sources import write_tokens
from gpt2core.networks.network import network_of
from gpt2core.run import prepare, train
from gpt2core.spec.errors import ConfigError, InputError
from gpt2core.step import slicing
from tests.support.networks import seq2seqs
from tests.support.networks.inferring import computed
from tests.support.networks.seq2seqs import MODEL, SOURCES, TARGETS

ROUNDING = 1e-6  # of the sum of exponentials, whose order is the compiler's
pytestmark = pytest.mark.usefixtures("no_canary")


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
