from __future__ import annotations

import time

import pytest

from gpt2core.spec.errors import ConfigError
from taskloom.worker.slurm import SlurmJob
from taskloom.worker.walltime import RESERVE_S, Walltime, parse_s


@pytest.mark.parametrize(
    ("text", "expected_s"),
    [("2h", 7200), ("1h30m", 5400), ("45s", 45), ("1d", 86400), ("02:00:00", 7200), ("1-12:00:30", 129630)],
)
def test_times_are_read(text: str, expected_s: float) -> None:
    assert parse_s(text) == expected_s


@pytest.mark.parametrize("text", ["", "0", "12", "2 h", "-1h", "0s", "1h2h", "nan", "1:00"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_s(text)
    assert (raised.value.field, raised.value.value) == ("walltime", text)


def test_without_an_end_everything_fits() -> None:
    endless = Walltime.of(None, SlurmJob("7", None))
    assert endless.remaining_s() is None
    assert endless.fits(1e9)


def test_the_earlier_end_counts_and_something_is_kept_for_it() -> None:
    in_an_hour = SlurmJob("7", time.time() + 3600)
    for walltime, limit_s in (
        (Walltime.of("2h", in_an_hour), 3600),
        (Walltime.of("30m", in_an_hour), 1800),
        (Walltime.of(None, in_an_hour), 3600),
    ):
        remaining_s = walltime.remaining_s()
        assert remaining_s is not None
        assert limit_s - RESERVE_S - 30 < remaining_s <= limit_s - RESERVE_S
        assert walltime.fits(limit_s - RESERVE_S - 30)
        assert not walltime.fits(limit_s)
    assert Walltime.of("1s", None).remaining_s() == 0
