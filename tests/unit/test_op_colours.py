"""Colours of ops in reports and in the dashboard: one list, and a kind for what each network computes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpt2core.networks.program import build
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.models import model_from
from taskloom.analysis.report.colours import op_colour

SCALE = Path(__file__).parents[2] / "server/ui/plots/scale.js"
# They copy or look up.
OTHER = {"tokens", "images", "pairs", "lengths", "bridge", "encoder", "embedding", "pack", "samples", "records"}


@pytest.mark.parametrize("model", ["tiny", "lstm-tiny", "resnet14-cifar", "vgg11-cifar", "seq2seq-tiny", "reader-tiny"])
def test_each_op_that_computes_has_a_kind_and_the_dashboard_shows_the_same(model: str) -> None:
    config = TrainConfig(model_from(model), batch=2, seq=1 if "cifar" in model else 8)
    ops = {call.name for _, _, call, _ in build(config).calls}
    assert {op for op in ops if op_colour(op) == "var(--other-op)"} <= OTHER
    listed = re.findall(r"\[\[('[^\]]+)\], '([a-z-]+)'\]", SCALE.read_text(encoding="utf-8"))
    kinds = {start: kind for starts, kind in listed for start in re.findall(r"'(\w+)'", starts)}
    for op in ops:
        found = next((kind for start, kind in kinds.items() if op.startswith(start)), "other-op")
        assert op_colour(op) == f"var(--{found})", op
