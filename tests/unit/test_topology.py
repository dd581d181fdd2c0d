"""Which cores a team takes, on recorded shapes of machines."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpt2core.measure import environment
from gpt2core.node import host
from gpt2core.node.topology import choose_cores, spread
from gpt2core.run import roof
from gpt2core.spec.config import TrainConfig
from taskloom import diagnosis
from taskloom.worker.affinity import team_cores


def machine(root: Path, siblings: dict[int, str], caches: dict[int, str] | None = None) -> Path:
    """A folder like /sys/devices/system/cpu, with the siblings of each core and the cores of its last-level cache."""
    for core, listed in siblings.items():
        topology = root / f"cpu{core}/topology"
        topology.mkdir(parents=True)
        (topology / "thread_siblings_list").write_text(listed + "\n")
        for index, level, shared in ((0, 1, listed), (3, 3, (caches or {}).get(core))):
            if shared is not None:
                folder = root / f"cpu{core}/cache/index{index}"
                folder.mkdir(parents=True)
                (folder / "level").write_text(f"{level}\n")
                (folder / "shared_cpu_list").write_text(shared + "\n")
    return root


def neighbours(root: Path) -> Path:
    """Four physical cores with the siblings 2k and 2k + 1; all share a cache."""
    return machine(
        root, {core: f"{core - core % 2}-{core - core % 2 + 1}" for core in range(8)}, dict.fromkeys(range(8), "0-7")
    )


def test_threads_take_a_physical_core_each_before_any_sibling(tmp_path: Path) -> None:
    assert spread(range(8), neighbours(tmp_path)) == (0, 2, 4, 6, 1, 3, 5, 7)
    assert spread((5, 4, 1, 0), tmp_path) == (5, 1, 4, 0)


def test_one_cache_is_filled_after_the_other(tmp_path: Path) -> None:
    even_odd = {core: "0,2,4,6" if core % 2 == 0 else "1,3,5,7" for core in range(8)}
    machine(tmp_path, {core: f"{core % 4},{core % 4 + 4}" for core in range(8)}, even_odd)
    assert spread(range(8), tmp_path) == (0, 2, 1, 3, 4, 6, 5, 7)


def test_a_machine_that_says_nothing_keeps_its_order(tmp_path: Path) -> None:
    assert spread((3, 1, 2), tmp_path) == (3, 1, 2)


def test_a_core_without_siblings_counts_as_a_physical_one(tmp_path: Path) -> None:
    machine(tmp_path, {core: str(core) for core in range(4)}, {0: "0,2", 1: "1,3", 2: "0,2", 3: "1,3"})
    for core in range(4):
        (tmp_path / f"cpu{core}/topology/thread_siblings_list").unlink()
    assert spread(range(4), tmp_path) == (0, 2, 1, 3)


def test_trainer_worker_and_peaks_take_the_same_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "CPU", neighbours(tmp_path))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert choose_cores(None, 3, False) == (0, 2, 4)
    assert choose_cores((0, 1, 2, 3), 2, False) == (0, 2)
    assert team_cores(TrainConfig(threads=3), tuple(range(8))) == (0, 2, 4)
    teams: list[tuple[int, ...]] = []
    for name in ("gflop_per_s", "triad_gb_per_s"):
        monkeypatch.setattr(roof, name, lambda team, *_: teams.append(tuple(team)) or 1.0)
    monkeypatch.setattr(roof, "all_registers_gflop_per_s", lambda team: teams.append(tuple(team)) or {})
    roof.measure([1, 3], lambda _: None)
    assert set(teams) == {(0,), (0, 2, 4)}


def test_a_result_says_whether_its_cores_have_siblings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "CPU", machine(tmp_path, {0: "0-1", 1: "0-1", 2: "2"}))
    assert [environment.describe("none", "", [core])["smt"] for core in (0, 2, 3)] == [True, False, None]


def hybrid(root: Path, capacities: dict[int, int]) -> Path:
    """The folder of a machine, such as a big.LITTLE one, with each core's capacity."""
    machine(root, {core: str(core) for core in capacities}, dict.fromkeys(capacities, "0-7"))
    for core, capacity in capacities.items():
        (root / f"cpu{core}/cpu_capacity").write_text(f"{capacity}\n")
    return root


def test_faster_cores_of_a_hybrid_processor_come_first(tmp_path: Path) -> None:
    root = hybrid(tmp_path / "system/cpu", {0: 446, 1: 446, 2: 871, 3: 1024, 5: 1024})  # core 4 is offline
    assert spread((0, 1, 2, 3, 5), root) == (3, 5, 2, 0, 1)
    assert spread((0, 1), root) == (0, 1)


def test_efficiency_cores_come_after_performance_cores_and_before_their_siblings(tmp_path: Path) -> None:
    root = machine(tmp_path / "system/cpu", {0: "0", 1: "1", 2: "2-3", 3: "2-3", 4: "4-5", 5: "4-5"})
    (tmp_path / "cpu_atom").mkdir()
    (tmp_path / "cpu_atom/cpus").write_text("0-1\n")
    assert spread(range(6), root) == (2, 4, 0, 1, 3, 5)


def test_doctor_names_the_faster_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "CPU", hybrid(tmp_path / "system/cpu", {0: 446, 1: 1024, 3: 1024}))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 3})
    assert diagnosis.speeds().advice.endswith("--cores 1,3")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 3})
    assert diagnosis.speeds().status == "ok"
