"""The node's peaks, measured at small sizes: all threads work, and results contain the kept peaks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from gpt2core.compile import target
from gpt2core.gemm import libraries as gemm
from gpt2core.gemm import registers
from gpt2core.gemm.multiply import new_scratch
from gpt2core.measure import environment
from gpt2core.node import host, peaks
from gpt2core.run import roof


@pytest.fixture
def small(monkeypatch, tmp_path):
    for name, value in (("SIZE", 128), ("TURNS", 1000), ("ARRAY_BYTES", 1 << 16),
                        ("THREAD_BYTES", 1 << 12), ("REPETITIONS", 2)):  # fmt: skip
        monkeypatch.setattr(roof, name, value)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(target.compiled_folder()))  # which is that of the other tests
    monkeypatch.setenv("TASKLOOM_CACHE_DIR", str(tmp_path))


@pytest.mark.usefixtures("small")
def test_peaks_are_rates_of_work_that_was_done():
    events: list[dict[str, Any]] = []
    found = roof.measure([1, 2], events.append)
    assert list(found["threads"]) == ["1", "2"]
    for reached in found["threads"].values():
        assert 0.1 < reached["gflop_per_s"] < 1e5
        assert 0.1 < reached["bf16_gflop_per_s"] < 1e5
        assert 0.1 < reached["triad_gb_per_s"] < 1e5
        assert 0.1 < reached["registers_gflop_per_s"] < 1e6
        assert reached["bf16_registers_gflop_per_s"] >= reached["registers_gflop_per_s"]
    assert [event["threads"] for event in events] == [1, 2]
    # Results name the libraries of bfloat16 products, because the peak depends on them.
    assert found["blas"]["bf16"]["name"].split(", ") == [library.name for library in gemm.available("bf16")]


def test_both_threads_do_their_share():
    """Triad writes all elements. Products of 64x64 matrices of ones are 64 everywhere."""
    arrays = [np.zeros(1000, np.float32) for _ in range(3)]
    roof.best_s([0, 1], roof.triad_loop, [np.array([array.ctypes.data for array in arrays], np.int64), 1000])
    assert (arrays[0] == 1 + 3 * 2).all()
    matrices = np.ones((2, 3, 64, 64), np.float32)
    addresses = matrices.ctypes.data + np.arange(2) * matrices.strides[0]
    scratch = [new_scratch() for _ in range(2)]
    of_thread = np.array([address for _, address in scratch], np.int64)
    for library in gemm.available():
        matrices[:, 2] = 1
        roof.best_s([0, 1], roof.products_loop, [library.by(64), of_thread, addresses, 64])
        assert (matrices[:, 2] == 64).all()
    assert (matrices[:, :2] == 1).all()


@pytest.mark.parametrize("kind", registers.kinds_of_bf16())
def test_every_chain_in_registers_takes_every_turn(kind):
    """x = x / 2 + 1 / 2 from 0 is 1 - 2^-n after n turns. A turn adds two products of 1/2 by 1/2 to a chain of pairs,
    and 32 to one of tile registers.
    """
    for turns in (1, 2, 5):
        sums = np.zeros((2, 16), np.float32)
        roof.best_s([0, 1], roof.registers_loop, [kind, np.float32(0.5), sums, turns])
        chains, each = {
            registers.FLOATS_KIND: (registers.chains(), 1 - 0.5**turns),
            registers.PAIRS_KIND: (registers.chains(), turns / 2),
            registers.TILES_KIND: (registers.TILE_CHAINS, 8 * turns),
        }[kind]
        assert (sums[:, 0] == chains * each).all()


@pytest.mark.parametrize(
    ("kind", "flop"),
    [
        (registers.FLOATS_KIND, 2 * registers.chains() * registers.vector_bits() // 32),
        (registers.PAIRS_KIND, 4 * registers.chains() * registers.vector_bits() // 32),
        (registers.TILES_KIND, 2 * registers.TILE_CHAINS * 16 * 16 * 32),
    ],
)
def test_flop_in_registers_are_those_of_the_chains(kind, flop, monkeypatch):
    """A loop of two threads that took one second."""
    turns: list[int] = []
    monkeypatch.setattr(roof, "best_s", lambda _cores, _loop, arguments: turns.append(arguments[-1]) or 1.0)
    assert roof.registers_gflop_per_s([0, 1], kind) == pytest.approx(2 * flop * turns[0] / 1e9)


def test_the_peak_of_bfloat16_is_that_of_the_fastest_chains(monkeypatch):
    monkeypatch.setattr(registers, "kinds_of_bf16", lambda: [registers.FLOATS_KIND, registers.PAIRS_KIND])
    monkeypatch.setattr(roof, "registers_gflop_per_s", lambda _cores, kind: [170.0, 85.0][kind])
    assert roof.all_registers_gflop_per_s([0]) == {"registers_gflop_per_s": 170.0, "bf16_registers_gflop_per_s": 170.0}


@pytest.mark.usefixtures("small")
def test_what_is_kept_is_what_results_carry():
    assert environment.describe("none", "", [0])["peaks"] is None
    found = {"schema": peaks.SCHEMA, "measured_at": "2026-11-21T12:00:00+00:00", "threads": {"1": {}}}
    peaks.keep(found)
    assert environment.describe("none", "", [0])["peaks"] == found
    peaks.path().write_text("{", encoding="utf-8")
    assert peaks.read() is None


def measured(at, blas="mkl 1", **rates):
    return {"schema": peaks.SCHEMA, "measured_at": at, "busy_cores": 0.1, "blas": blas, "threads": {"1": rates}}


@pytest.mark.usefixtures("small")
def test_a_later_measurement_never_replaces_a_better_figure():
    peaks.keep(measured("monday", gflop_per_s=200.0, triad_gb_per_s=20.0, registers_gflop_per_s=None))
    kept = peaks.keep(measured("tuesday", gflop_per_s=90.0, triad_gb_per_s=21.0, registers_gflop_per_s=210.0))
    assert kept == peaks.read()
    assert kept["threads"] == {"1": {"gflop_per_s": 200.0, "triad_gb_per_s": 21.0, "registers_gflop_per_s": 210.0}}
    assert kept["measured_at"] == "tuesday"
    assert kept["earlier"] == {"measured_at": "monday", "busy_cores": 0.1, "figures": 1}
    better = peaks.keep(measured("wednesday", gflop_per_s=201.0, triad_gb_per_s=22.0, registers_gflop_per_s=211.0))
    assert "earlier" not in better


@pytest.mark.usefixtures("small")
def test_products_of_another_library_are_other_figures():
    peaks.keep(measured("monday", gflop_per_s=200.0, triad_gb_per_s=20.0))
    kept = peaks.keep(measured("tuesday", "mkl 2", gflop_per_s=90.0, triad_gb_per_s=10.0))
    assert kept["threads"] == {"1": {"gflop_per_s": 90.0, "triad_gb_per_s": 20.0}}


def test_another_node_is_another_file(monkeypatch):
    mine = peaks.path()
    monkeypatch.setattr(host, "cpu_model", lambda: "Some other CPU")
    assert peaks.path() != mine


@pytest.mark.parametrize(
    ("cores", "counts"), [(1, [1]), (2, [1, 2]), (12, [*range(1, 9), 12]), (40, [*range(1, 9), 16, 32, 40])]
)
def test_thread_counts(cores, counts):
    assert peaks.thread_counts(cores) == counts


@pytest.mark.slow
def test_the_process_reports_and_keeps(tmp_path):
    result = tmp_path / "peaks.json"
    code = "from gpt2core.run import roof; roof.SIZE, roof.ARRAY_BYTES, roof.REPETITIONS = 64, 1 << 16, 1; roof.main()"
    command = [sys.executable, "-c", code, "--result", str(result)]
    environment = {**os.environ, "TASKLOOM_CACHE_DIR": str(tmp_path), "NUMBA_CACHE_DIR": str(target.compiled_folder())}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert json.loads(done.stdout.splitlines()[-1])["event"] == "result"
    assert json.loads(result.read_text())["threads"]["1"]["gflop_per_s"] > 0
