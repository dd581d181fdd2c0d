"""Energy from a recorded powercap tree: parts, wrap-around, and the reasons for what cannot be read."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from gpt2core.measure import energy
from gpt2core.measure.energy import MEMORY, PACKAGE, Meter
from gpt2core.measure.evidence import Watcher, energy_used
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.models import model_from
from gpt2core.spec.result import energy_per_step_j
from taskloom import diagnosis
from taskloom.train_tables import result as tables

RANGE_UJ = 262_143_328_850  # of a Xeon


def zone(root: Path, folder: str, name: str, energy_uj: int) -> Path:
    at = root / folder
    at.mkdir(parents=True)
    for file, text in (("name", name), ("max_energy_range_uj", RANGE_UJ), ("energy_uj", energy_uj)):
        (at / file).write_text(f"{text}\n", encoding="utf-8")
    return at / "energy_uj"


@pytest.fixture
def two_packages(tmp_path: Path) -> dict[str, Path]:
    """Zones as Linux shows those of two packages with memory, one also over MMIO, and a platform zone."""
    return {
        folder: zone(tmp_path, folder, name, start)
        for folder, name, start in (
            ("intel-rapl:0", "package-0", RANGE_UJ - 1_000_000), ("intel-rapl:0:0", "core", 5),
            ("intel-rapl:0:1", "dram", 7), ("intel-rapl:1", "package-1", 2_000_000), ("intel-rapl:1:0", "dram", 9),
            ("intel-rapl:2", "psys", 1), ("intel-rapl-mmio:0", "package-0", 3),
        )
    }  # fmt: skip


def test_packages_and_memory_are_summed_and_a_counter_may_wrap(tmp_path: Path, two_packages: dict[str, Path]) -> None:
    meter = Meter(tmp_path)
    assert [zone.name for zone in meter.zones] == ["package-0", "package-0/dram", "package-1", "package-1/dram"]
    for folder, now in (
        ("intel-rapl:0", 500_000), ("intel-rapl:1", 5_000_000), ("intel-rapl:0:1", 1_000_007),
        ("intel-rapl:0:0", 10**9), ("intel-rapl:2", 10**10), ("intel-rapl-mmio:0", 10**11),
    ):  # fmt: skip
        two_packages[folder].write_text(str(now), encoding="utf-8")
    assert meter.read_j(PACKAGE) == pytest.approx(1.5 + 3.0)
    assert meter.read_j(MEMORY) == pytest.approx(1.0)
    two_packages["intel-rapl:1"].write_text("4000000", encoding="utf-8")  # wrapped between these readings
    assert meter.read_j(PACKAGE) == pytest.approx(1.5 + 3.0 + RANGE_UJ / 1e6 - 1.0)
    assert meter.unavailable == {}


def test_what_cannot_be_read_is_null_with_its_reason(tmp_path: Path, two_packages: dict[str, Path]) -> None:
    assert set(Meter(tmp_path / "none").unavailable) == {PACKAGE, MEMORY}
    two_packages["intel-rapl:1"].unlink()
    two_packages["intel-rapl:1"].mkdir()  # as unreadable for root too
    meter = Meter(tmp_path)
    assert meter.read_j(PACKAGE) is None, "one package's energy is not that of both"
    assert "chmod a+r" in meter.unavailable[PACKAGE]
    assert str(two_packages["intel-rapl:1"]) in meter.unavailable[PACKAGE]
    assert meter.read_j(MEMORY) == 0.0


def test_a_counter_that_disappears_during_a_run(tmp_path: Path, two_packages: dict[str, Path]) -> None:
    watcher = Watcher((0,), meter=Meter(tmp_path))
    watcher.read()
    two_packages["intel-rapl:0"].unlink()
    watcher.read()
    found = energy_used(watcher, [np.array([reading.ticks for reading in watcher.readings])])
    assert found["package_j"] is None
    assert found["memory_j"] == 0.0
    assert "any more" in found["unavailable"]["package_j"]


def test_joules_between_two_readings_are_those_of_the_span(tmp_path: Path, two_packages: dict[str, Path]) -> None:
    watcher = Watcher((0,), meter=Meter(tmp_path))
    watcher.read()
    two_packages["intel-rapl:1"].write_text("12000000", encoding="utf-8")
    watcher.read()
    first, last = (reading.ticks for reading in watcher.readings)
    assert energy_used(watcher, [np.array([first, last])])["package_j"] == pytest.approx(10.0)
    assert energy_used(watcher, [np.array([first, (first + last) // 2])])["package_j"] == pytest.approx(5.0, rel=1e-3)


def test_joules_of_a_step_have_a_reason_where_they_are_missing() -> None:
    result = {"config": {"warmup": 1}, "step_s": [0.1, 0.1, 0.1]}
    assert energy_per_step_j(result) == (None, "energy was not measured")
    refused = {**result, "energy": {"package_j": None, "unavailable": {"package_j": "no RAPL"}}}
    assert energy_per_step_j(refused) == (None, "no RAPL")
    assert energy_per_step_j({**result, "energy": {"package_j": 8.0, "memory_j": None}}) == (4.0, "")
    assert energy_per_step_j({**result, "energy": {"package_j": 8.0, "memory_j": 2.0}}) == (5.0, "")


def test_a_run_reports_the_energy_of_its_timed_steps(
    tmp_path: Path, two_packages: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from gpt2core.run.train import train  # compiles

    monkeypatch.setattr(energy, "POWERCAP", tmp_path)

    def use_a_joule(event: dict[str, Any]) -> None:
        if event["event"] == "step":
            file = two_packages["intel-rapl:1"]
            file.write_text(str(int(file.read_text(encoding="utf-8")) + 1_000_000), encoding="utf-8")

    config = TrainConfig(model=model_from("tiny"), batch=1, seq=8, steps=3, warmup=1, threads=1)
    found = train(config, emit=use_a_joule).to_dict()
    assert found["energy"]["zones"] == ["package-0", "package-0/dram", "package-1", "package-1/dram"]
    assert found["energy"]["memory_j"] == 0.0
    assert 0.0 <= found["energy"]["package_j"] <= 3.0
    written = io.StringIO()
    console = Console(file=written, width=100)
    for part in tables({**found, "energy": {"package_j": 8.0, "memory_j": 0.0}}):
        console.print(part)
    assert "4 J, 0.5 J" in written.getvalue(), "of a step, of a token"


def test_doctor_names_the_counters_or_the_reason(
    tmp_path: Path, two_packages: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    del two_packages
    monkeypatch.setattr(energy, "POWERCAP", tmp_path)
    assert "package-0, package-0/dram" in diagnosis.rapl().found
    monkeypatch.setattr(energy, "POWERCAP", tmp_path / "none")
    assert "no RAPL" in diagnosis.rapl().found
