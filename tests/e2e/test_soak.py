"""The program of `make soak`, for some seconds."""

from __future__ import annotations

import pytest

from tests.support import soak
from tests.support.processes import House, short_leases

pytestmark = [pytest.mark.both_databases, pytest.mark.slow]


@pytest.fixture
def server_settings() -> dict[str, float]:
    return short_leases(6.0, heartbeat_s=1.0, reap_after_s=0.0)


def test_a_short_soak_counts_every_run(home: House) -> None:
    found = soak.soak(home, minutes=0.1, queue=20, at_once=40)
    assert {name: found[name] for name in ("lost", "doubled", "stuck", "failures")} == {
        "lost": 0, "doubled": 0, "stuck": 0, "failures": {},
    }  # fmt: skip
    assert found["submitted"] == found["succeeded"] == found["runs"]
    assert set(soak.ATTACKS) | {"streams", "looks"} <= set(found["load"])  # type: ignore[call-overload]
    assert home.start_worker("quick", "--idle-exit", "1s").wait() == 0  # the server still answers


def test_growth_of_memory_is_seen() -> None:
    found = soak.grown([float(n // 10) for n in range(100)])
    assert found["tenths"] == [float(n) for n in range(10)]
    assert soak.grown([1.0]) == {"number": 1, "tenths": [1.0]}
