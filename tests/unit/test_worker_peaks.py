"""Peaks are not measured under load, and belong to the cores of a node."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from queue import SimpleQueue

import pytest

from gpt2core.node import peaks
from taskloom.worker.peaks import Begun, Measurement
from taskloom.worker.report import Report
from taskloom.worker.settings import parse

BUSY = "print(flush=True)\nwhile True: pass"


def not_to_be_run(_: Path) -> list[str]:
    raise AssertionError("peaks were measured beside a load")


def test_peaks_are_not_measured_beside_a_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TASKLOOM_CACHE_DIR", str(tmp_path))
    settings = parse(["--spool", str(tmp_path)], {})
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE) as busy:
        try:
            assert busy.stdout
            busy.stdout.readline()
            measurement = Measurement(settings, SimpleQueue(), Report(as_json=True), not_to_be_run)
            assert measurement.first()
            assert measurement.begin() == Begun.BUSY
        finally:
            busy.kill()
    event = json.loads(capsys.readouterr().out)
    assert event["event"] == "peaks-skipped"
    assert event["busy_cores"] > 0.25
    assert peaks.read() is None


def test_peaks_belong_to_the_cores_they_were_measured_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASKLOOM_CACHE_DIR", str(tmp_path))
    cores = sorted(os.sched_getaffinity(0))
    peaks.keep({"schema": peaks.SCHEMA, "threads": {}})
    assert peaks.read(cores[::-1]) == peaks.read() == {"schema": peaks.SCHEMA, "threads": {}}
    assert peaks.read([*cores, 4000]) is None
