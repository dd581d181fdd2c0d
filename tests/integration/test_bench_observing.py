"""The kinds of runs whose cost is compared do run, and differ in what they observe."""

from __future__ import annotations

import pytest

from bench.observing import VARIANTS, measure
from gpt2core.measure import tracing
from gpt2core.measure.evidence import Watcher
from gpt2core.run import execute, report
from gpt2core.spec.config import TrainConfig

CONFIG = TrainConfig.from_dict({
    "model": "tiny", "batch": 1, "seq": 16, "steps": 8, "warmup": 4, "threads": 1, "data": "synthetic",
})  # fmt: skip


@pytest.mark.parametrize("variant", VARIANTS)
def test_each_variant_runs(tmp_path, variant):
    found = measure(CONFIG, variant, tmp_path)
    assert (found["variant"], len(found["step_s"])) == (variant, 8)
    assert (found["trace_bytes"] is not None) == (variant == "traced")
    assert (found["flagged"] == []) == (variant == "bare")


def test_what_a_bare_run_replaces_exists():
    """`bare` assigns these names; a renamed one would silently be observed again."""
    for owner, name in ((tracing, "new_record"), (Watcher, "read_if_due"), (execute.Stages, "counting"),
                        (report.Report, "evidence")):  # fmt: skip
        assert callable(getattr(owner, name))
