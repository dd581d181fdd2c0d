"""The title of a dry run's table says what the planned pairs can decide."""

from __future__ import annotations

import pytest

from taskloom.contract.experiments import DryRun
from taskloom.tables import dry_run


@pytest.mark.parametrize(
    ("family", "told"),
    [
        (
            {"comparisons": 6, "pooled": 2, "pairs": 8, "smallest_p": 0.0625, "needed": 9},
            "; too few pairs to decide one of 6 comparisons and 2 pooled ratios alone, which takes at least 9",
        ),
        (
            {"comparisons": 1, "pooled": 0, "pairs": 5, "smallest_p": 1.0, "needed": 6},
            "; too few pairs to decide the comparison, which takes at least 6",
        ),
        (
            {"comparisons": 2, "pooled": 0, "pairs": 0, "smallest_p": 1.0, "needed": 7},
            "; the order sequential makes no pairs, so none of 2 comparisons can be decided",
        ),
        ({"comparisons": 6, "pooled": 2, "pairs": 9, "smallest_p": 0.031, "needed": 9}, ""),
        (None, ""),
    ],
)
def test_too_few_pairs_are_said_before_anything_runs(family: dict[str, float] | None, told: str) -> None:
    plan = DryRun.model_validate(
        {"runs": 72, "variants": 9, "memory_bytes": 2**20, "estimated_s": None, "order": [], "family": family}
    )
    assert dry_run(plan).title == f"72 runs of 9 variants; largest run: 1 MiB{told}"
