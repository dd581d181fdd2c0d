"""Memory is drawn up to the largest shape that the trainer accepts: blocks of units are refused for many times."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gpt2core.networks.memory import memory_bytes
from gpt2core.run.memory import what_fits
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import ConfigError
from taskloom.server.read.analysis import analyses
from taskloom.server.read.analysis.growth import memory_growth

BLOCKS = {"model": "lstm-deep", "batch": 4, "seq": 64, "unit_slice": 64}
WHOLE = {**BLOCKS, "unit_slice": None, "mode": "infer", "logits": "last", "seq": 512}


def group(settings: dict[str, Any]) -> Any:
    config = TrainConfig.from_dict(settings)
    return [SimpleNamespace(config=config.to_dict(), result={"memory_bytes": memory_bytes(config)})]


def test_a_longer_sample_is_refused() -> None:
    with pytest.raises(ConfigError, match="unit_slice = 64"):
        TrainConfig.from_dict({**BLOCKS, "seq": 512})


def test_shapes_end_where_the_trainer_refuses_them() -> None:
    found = analyses._memory(group(BLOCKS))
    assert [shape.seq for shape in found.with_seq] == [64, 128, 256]
    assert [shape.batch for shape in found.with_batch] == [4, 8, 16, 32, 64]
    assert found.exact


@pytest.mark.parametrize("order", [(BLOCKS, WHOLE), (WHOLE, BLOCKS)], ids=["blocks first", "whole first"])
def test_growth_is_drawn_where_every_mode_is_accepted(order: tuple[dict[str, Any], ...]) -> None:
    groups = [group(each) for each in order]
    row = SimpleNamespace(memory=SimpleNamespace(peak_rss_bytes=1 << 30, peak_compiled=False))
    by_batch, by_seq = memory_growth(groups, [row] * len(groups))  # type: ignore[list-item]
    assert by_seq.size == order[0]["seq"]
    assert by_seq.points[-1].size == {64: 256, 512: 1024}[order[0]["seq"]]
    assert by_batch.points[-1].size == 64


@pytest.mark.parametrize("settings", [BLOCKS, {"model": "seq2seq-tiny", "batch": 8}], ids=["blocks", "shortest"])
def test_a_refused_shape_is_no_advice(settings: dict[str, Any]) -> None:
    assert what_fits(TrainConfig.from_dict(settings), 100) == "neither this model nor a preset fits with batch 1"


def test_one_more_token_is_not_asked_for_where_it_is_refused() -> None:
    """At 256 times of 64 units no longer sample is accepted although the context is longer."""
    found = analyses._memory(group({**BLOCKS, "seq": 256}))
    assert [shape.seq for shape in found.with_seq] == [256]
    assert found.per_token_bytes == {}
    last = analyses._memory(group({**BLOCKS, "unit_slice": None, "seq": 1000}))
    assert last.per_token_bytes["activations"] > 0
