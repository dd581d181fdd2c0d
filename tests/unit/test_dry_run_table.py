"""What the planned pairs can decide is said before anything runs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from taskloom.contract.experiments import ExperimentSummary
from taskloom.contract.plans import DryRun
from taskloom.tables import decidable, dry_run, experiments

PLAN: dict[str, Any] = {
    "runs": 72, "variants": 9, "repetitions": 8, "memory_bytes": 2**20, "estimated_s": None, "order": [],
}  # fmt: skip
ASKED = {"a": "fork-join, 2 threads", "b": "task, 2 threads", "smallest_p": 0.03, "needed": 6}


def planned(pairs: int, needed: int, **more: object) -> dict[str, Any]:
    return {"pairs": pairs, "needed": needed, "smallest_p": 1.0, "decidable": pairs >= needed, **more}


@pytest.mark.parametrize(
    ("plan", "lines"),
    [
        (
            {"family": planned(8, 9, comparisons=6, pooled=2)},
            ["each of 6 comparisons and 2 pooled ratios alone: 8 pairs cannot decide it, whatever the times; at least "
             "9 repetitions can"],
        ),
        (
            {"family": planned(5, 6, comparisons=1, pooled=0)},
            ["the comparison: 5 pairs cannot decide it, whatever the times; at least 6 repetitions can"],
        ),
        (
            {"family": planned(0, 7, comparisons=2, pooled=0)},
            ["each of 2 comparisons alone: cannot be decided, because the order sequential makes no pairs"],
        ),
        (
            {"family": planned(6, 6, comparisons=1, pooled=0), "primary": {**ASKED, "pairs": 6, "decidable": True}},
            ["the question (task, 2 threads against fork-join, 2 threads): 6 pairs can decide it; 6 suffice",
             "the other comparison: 6 pairs can decide it; 6 suffice"],
        ),
        ({"family": None}, []),
    ],
)  # fmt: skip
def test_a_plan_says_what_its_pairs_can_decide(plan: dict[str, Any], lines: list[str]) -> None:
    made = DryRun.model_validate({**PLAN, **plan})
    assert decidable(made) == lines
    assert dry_run(made).title == "72 runs of 9 variants; largest run: 1 MiB"


@pytest.mark.parametrize(("basis", "shown"), [("guess", "in 2 min (a guess)"), ("finished-runs", "in 2 min")])
def test_the_list_of_experiments_says_which_estimates_are_guesses(basis, shown):
    at = datetime(2026, 11, 28, tzinfo=UTC)
    item = ExperimentSummary.model_construct(
        id=1, name="", tags=[], state="active", by_state={"queued": 2}, created_at=at, finished_at=None, runs=2,
        submitter="local", submitter_name=None, eta_s=120.0, eta_basis=basis,
    )  # fmt: skip
    assert shown in [cell for column in experiments([item]).columns for cell in column.cells]
