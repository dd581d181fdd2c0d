"""Kept settings of tunings: which one fits, what completes a base, and what is said of it."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gpt2core.node import host
from gpt2core.spec.errors import ConfigError
from gpt2core.spec.series import MACHINE
from taskloom import Client, tuned
from taskloom.contract.tuned import TunedSetting

NOW = datetime(2026, 3, 4, tzinfo=UTC)
HERE = {"node": "a", "turbo": True}


def kept(experiment_id, days=3, changed=(), **machine):
    return TunedSetting(
        changed=list(changed),
        experiment_id=experiment_id, confirmed_at=NOW - timedelta(days=days), node="a", machine={**HERE, **machine},
        problem={}, settings={"scheduler": "task", "threads": 4}, ratio=1.2, ratio_low=1.1, ratio_high=1.3, pairs=8,
        beats_at_least=0.86, sentence="task is faster.",
    )  # fmt: skip


class Known(Client):
    """A client's answer."""

    def __init__(self, *items):
        self.items, self.asked = items, []

    def tuned(self, base: dict[str, Any] | None = None) -> Iterator[TunedSetting]:
        self.asked.append(base)
        return iter(self.items)


def test_the_newest_that_fits_the_machine():
    client = Known(kept(9, turbo=False), kept(7), kept(3))
    assert tuned.find(client, {"model": "tiny"}).experiment_id == 9
    assert tuned.find(client, {"model": "tiny"}, HERE).experiment_id == 7
    assert client.asked == [{"model": "tiny"}] * 2


def test_a_changed_fingerprint_and_an_unknown_problem_are_named():
    with pytest.raises(ConfigError, match=r"experiment 9 ran on another one \(turbo differ\): tune again"):
        tuned.find(Known(kept(9, turbo=False)), {}, HERE)
    with pytest.raises(ConfigError, match=r"experiment 8 ran on a, which has changed since \(turbo, smt\): tune again"):
        tuned.find(Known(kept(8, changed=["turbo", "smt"])), {})
    assert tuned.find(Known(kept(8, changed=["turbo"]), kept(2)), {}).experiment_id == 2
    with pytest.raises(ConfigError, match="taskloom tune"):
        tuned.find(Known(), {})


def test_what_is_given_stays_and_what_varies_is_left_open():
    found = kept(1)
    assert tuned.completed({"threads": 2}, found, set()) == {"scheduler": "task", "threads": 2}
    assert tuned.completed({"seq": 64}, found, {"scheduler"}) == {"threads": 4, "seq": 64}


@pytest.mark.parametrize(("days", "age"), [(0, "today"), (1, "1 day ago"), (3, "3 days ago")])
def test_its_age_and_evidence(days, age):
    assert tuned.said(kept(5, days), NOW) == f"tuned {age} on a (experiment 5): task is faster."


def test_the_fingerprint_is_known_without_a_trainer():
    assert set(host.machine(0)) == set(MACHINE) - {"clock"}
