"""bench.sharing: an update after another core has read the weights, or beside another core's."""

import json
import os

import pytest

from bench import sharing
from bench.sharing import CASES, table


def report(*rounds):
    return {"at": "2026-11-25T04:00:00", "machine": {"cpu_model": "CPU", "cores": 2, "kernel": "6"}, "cores": [0, 1],
            "block": 8, "rounds": [dict(zip(CASES, each, strict=True)) for each in rounds]}  # fmt: skip


def test_rounds_in_which_the_cores_were_apart_are_told_from_the_others():
    near, apart = (1e-4, 9e-5, 1.1e-4, 2e-4), [(1e-4, 9e-5, 1e-3, 1e-4), (1.2e-4, 9e-5, 1.2e-3, 1e-4)]
    rows = table(report(near, *apart)).splitlines()
    assert rows[-2:] == ["| together | 1 | 100 | 90 | 110 | 200 |", "| apart | 2 | 110 | 90 | 1100 | 100 |"]
    assert table(report(near)).splitlines()[-1] == "| apart | 0 | - | - | - | - |"


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="this processor lacks a second core")
def test_every_round_is_recorded(tmp_path, capsys):
    sharing.main(["--rounds", "2", "--blocks", "2", "--weights", "1200000", "--busy-s", "0", "--out", f"{tmp_path}/x"])
    found = json.loads((tmp_path / "x.json").read_text())
    assert found["schema"] == "taskloom.bench.sharing/2"
    assert [list(each) for each in found["rounds"]] == [list(CASES)] * 2
    assert all(0 < each[case] < 1 for each in found["rounds"] for case in CASES)
    assert "[2/2] after nobody" in capsys.readouterr().out


def test_fewer_weights_than_a_round_needs_are_refused(capsys):
    with pytest.raises(SystemExit):
        sharing.main(["--weights", "1000"])
    assert "--weights 1000: at least 5 blocks, 1105920" in capsys.readouterr().err


def test_a_bound_thread_stays_on_its_core():
    core = max(os.sched_getaffinity(0))
    with sharing.bound(core) as thread:
        assert thread.submit(os.sched_getaffinity, 0).result() == {core}
