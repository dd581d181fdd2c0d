"""Tokens come before ratios in the benchmark of generation."""

from __future__ import annotations

from typing import Any

import pytest

from bench.generation import compare, equal_tokens, label_of, table
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.models import model_from

BASE = TrainConfig(model=model_from("tiny"), mode="infer", generate=4, prompt=(1, 2), threads=2)
PEAKS = {"peaks": {"threads": {"2": {"triad_gb_per_s": 20.0}}}}


def run(variant: str, round_no: int, token_s: float, tokens: list[int]) -> dict[str, Any]:
    return {
        "round": round_no, "case": label_of(BASE), "variant": variant, "tokens": tokens, "first_s": 10 * token_s,
        "token_s": [token_s] * 3, "peak_rss_bytes": 1 << 20, "others": 0.0, "environment": PEAKS,
    }  # fmt: skip


@pytest.mark.parametrize(("tokens", "equal"), [([5, 6, 7, 8], 4), ([5, 6, 9, 8], 2), ([0, 6, 7, 8], 0)])
def test_a_variant_with_other_tokens_has_no_ratio(tokens: list[int], equal: int) -> None:
    assert equal_tokens(tokens, [5, 6, 7, 8]) == equal
    runs = [run("task", number, 0.001 * (1 + number / 100), [5, 6, 7, 8]) for number in range(2)]
    runs += [run("torch-eager", number, 0.002 * (1 + number / 100), tokens) for number in range(2)]
    found = compare(BASE, ["task", "torch-eager"], runs)
    ours, theirs = found["rows"]
    assert ours["weights_gb_per_s"] == pytest.approx(found["weight_bytes"] / ours["token_s"] / 1e9)
    assert ours["triad_share"] == pytest.approx(ours["weights_gb_per_s"] / 20)
    agrees = equal == 4
    assert (theirs["ratio"], theirs["first_ratio"]["ratio"]) == ((pytest.approx(2),) * 2 if agrees else (None, None))
    machine = {"cpu_model": "x", "cores": 2, "memory_bytes": 1 << 30, "kernel": "6", "load_average": [0.0],
               "load_average_after": [0.0]}  # fmt: skip
    report = {"name": "bench.generation", "at": "2026-11-28", "machine": machine, "command": [], "comparisons": [found]}
    assert ("tokens differ" in table(report)) is not agrees
