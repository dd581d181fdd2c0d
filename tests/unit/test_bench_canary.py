"""The share of a host's changes of speed that the canary removes, computed from planted changes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bench.canary import KEPT, followed, measure, table
from gpt2core.spec.config import TrainConfig
from taskloom.analysis.processes import Process

LEVELS = np.array([0.0, 0.05] * 200)  # a host of two speeds
ABOUT = {"case": "a case", "at": "2026-11-23", "machine": {"cpu_model": "CPU", "cores": 2, "kernel": "6",
                                                          "load_average": [0.0]}}  # fmt: skip


def planted(follows, sd=0.0, seed=1):
    rng = np.random.default_rng(seed)
    own, others = rng.normal(0, 0.005, LEVELS.size), rng.normal(0, sd, LEVELS.size)
    return followed(np.exp(LEVELS + own).tolist(), (0.02 * np.exp(follows * LEVELS + others)).tolist())


@pytest.mark.parametrize("follows", [1.0, 0.8, 0.5])
def test_a_canary_that_follows_in_part_leaves_the_rest(follows):
    found = planted(follows)
    variance, own = 0.025**2, 0.005**2
    left = (1 - follows) ** 2 * variance + own
    assert found["blocks"] == LEVELS.size
    assert found["removed"] == pytest.approx(1 - left / (variance + own), abs=0.01)
    assert found["sd_target"] == pytest.approx((variance + own) ** 0.5, rel=0.02)
    assert found["sd_over_canary"] == pytest.approx(left**0.5, rel=0.1)
    assert found["slope"] == pytest.approx(follows * variance / (variance + own), rel=0.02)
    assert found["correlation"] == pytest.approx((variance / (variance + own)) ** 0.5, abs=0.01)


def test_a_canary_that_only_scatters_removes_less_than_nothing():
    found = planted(0.0, sd=0.025)
    assert found["removed"] == pytest.approx(-(0.025**2) / (0.025**2 + 0.005**2), abs=0.15)
    assert abs(found["correlation"]) < 0.15


@pytest.mark.parametrize(("target", "canary"), [([1.0, 1.1, 1.0, 1.2, 1.0], [2.0, 2.1, 2.0, 2.2, 2.1]),
                                                ([1.0] * 8, [2.0, 2.1] * 4), ([1.0, 1.1] * 4, [2.0] * 8)])  # fmt: skip
def test_few_blocks_and_no_spread_give_no_figures(target, canary):
    found = followed(target, canary)
    assert [found[name] for name in ("removed", "correlation", "slope", "sd_target")] == [None] * 4
    assert "| - | - | - | - | - | - |" in table({**ABOUT, **found})


def test_the_table_says_what_holds_and_where_neighbours_resemble_each_other():
    slow = np.exp(np.repeat([0.0, 0.05, 0.0, 0.05], 10) + np.random.default_rng(2).normal(0, 0.002, 40))
    text = table({**ABOUT, **followed(slow.tolist(), (0.02 * slow).tolist())})
    assert "nothing has an interval" in text
    assert "| 1.00 | 1.00 | 100% |" in text
    assert "neighbours resemble each other" in text


def test_a_block_is_a_process_with_its_canary(tmp_path: Path) -> None:
    runs = measure(TrainConfig(batch=1, seq=16, steps=3, threads=1), 2, tmp_path)
    assert [set(json.loads(json.dumps(run))) for run in runs] == [set(KEPT)] * 2
    assert all((Process(0, run).canary_s or 0) > 0 and Process(0, run).median_step_s > 0 for run in runs)
