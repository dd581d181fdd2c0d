"""Losses come before ratios in the benchmark against PyTorch."""

from __future__ import annotations

import dataclasses
import math

import pytest

from bench.step import Case, compare

CASE = Case(4, 64, 2, "fp32", 0.0)


def run(variant, losses):
    return {
        **dataclasses.asdict(CASE), "variant": variant, "losses": losses, "step_s": [9.0, 1.0, 1.0], "others": 0.0,
        "peak_rss_bytes": 1, "page_faults": [0, 0, 0], "threads_on": [[0], [1]],
    }  # fmt: skip


@pytest.mark.parametrize(("losses", "agrees"), [([5.0, 4.9], True), ([5.0, 4.8], False), ([5.0, math.nan], False)])
def test_a_variant_with_other_losses_has_no_ratio(losses, agrees):
    runs = [run("task", [5.0, 4.9]), run("torch-compile", losses)]
    _, row = compare(CASE, ["task", "torch-compile"], runs, 1)["rows"]
    assert (row["ratio"] is not None) is agrees
