"""The claim's SQL and the rule of contract/fitting.py agree on random workers and blocks."""

from __future__ import annotations

import random
from typing import Any

import pytest

from taskloom.contract.demand import Need, PresentWorker
from taskloom.contract.fitting import REQUIREMENTS, lacks

pytestmark = pytest.mark.both_databases
MIB = 1 << 20
SITES, GENERATIONS = ("a", "b"), ("1", "2")


def some(chance: random.Random, **choices: tuple[str, ...]) -> dict[str, str]:
    """Some of the labels, each with one of its values."""
    return {name: chance.choice(values) for name, values in choices.items() if chance.random() < 0.5}


def test_a_worker_claims_a_block_if_and_only_if_it_lacks_nothing(api):
    chance, seen = random.Random(7), set()
    api.worker("large", cores=list(range(8)))  # submissions that no known node could run are refused
    for number in range(40):
        pinned = sorted(chance.sample(range(5), chance.randint(1, 2))) if chance.random() < 0.4 else None
        requires: dict[str, Any] = {"labels": some(chance, site=SITES, gen=GENERATIONS)}
        if chance.random() < 0.5:
            requires["cores"] = chance.randint(max(1, len(pinned or ())), 4)
        if chance.random() < 0.5:
            requires["memory_bytes"] = chance.choice((64, 512)) * MIB
        base = {"threads": len(pinned or "1"), **({} if pinned is None else {"cores": pinned})}
        made = api.submit(base=base, requires=requires)
        (need,) = (Need.model_validate(each) for each in api.get("/queue/demand")["needs"])
        labels = {**some(chance, site=SITES, gen=GENERATIONS), **(requires["labels"] if chance.random() < 0.6 else {})}
        offered = {
            "cores": sorted(chance.sample(range(6), chance.randint(1, 5))), "labels": labels,
            "memory_bytes": chance.choice((128, 1024)) * MIB,
        }  # fmt: skip
        present = PresentWorker(worker_id="", remaining_s=None, idle=True, **offered)
        lack = lacks(need.need, present.offer)
        worker = api.worker(f"w{number}", **offered)
        worker.claim(201 if lack is None else 204)
        seen.add(lack)
        api.post(f"/experiments/{made['id']}/cancel")
    assert seen == {None, *REQUIREMENTS} - {"too-little-time"}


@pytest.mark.parametrize(("remaining_s", "lack"), [(101.0, None), (99.0, "too-little-time"), (None, None)])
def test_the_time_that_is_left_counts_alike(api, remaining_s, lack):
    api.submit(limits={"timeout_s": 100})
    (need,) = (Need.model_validate(each) for each in api.get("/queue/demand")["needs"])
    offered = {"cores": [0], "labels": {}, "memory_bytes": 1 << 30}
    present = PresentWorker(worker_id="", remaining_s=remaining_s, idle=True, **offered)
    assert lacks(need.need, present.offer) == lack
    asked = {} if remaining_s is None else {"remaining_s": remaining_s}
    api.worker("w1", **offered).claim(201 if lack is None else 204, **asked)
