"""Two variants of an experiment have two names, whichever setting tells them apart, wherever they are named."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from rich.table import Table

from taskloom import analysis_tables, tables
from taskloom.analysis.processes import Process
from taskloom.analysis.report import Report, page, plots
from taskloom.analysis.report.conclusion import variant_name
from taskloom.analysis.report.workload import row_name
from taskloom.analysis.scaling import ScalingTable
from taskloom.analysis.workload import Workload, workload
from tests.support.report_example import OPS, PEAKS, make_report

LSTM = {"model": "lstm-tiny", "batch_slice": 4, "token_slice": 16}
AXES = [
    ("sync", "step", "none", {}),
    ("policy", "breadth-first", "critical-path", {}),
    ("fusion", "rows", "all", {}),
    ("blas", "own", "openblas", {}),
    ("precision", "fp32", "bf16", {}),
    ("batch", 4, 8, {}),
    ("mode", "train", "infer", {}),
    ("ranks", 1, 2, {}),
    ("token_slice", 32, 64, {}),
    ("op_order", "layers", "diagonals", LSTM),
    ("unit_slice", 8, 16, LSTM),
]


@pytest.fixture(params=AXES, ids=lambda axis: axis[0])
def processes(request: pytest.FixtureRequest, make_result: Callable[..., dict[str, Any]]) -> list[Process]:
    """Two values of a setting, on one thread and on two, each once."""
    name, *values, others = request.param
    made: list[Process] = []
    for value in values:
        for threads in (1, 2):
            settings = {"scheduler": "task", "threads": threads, **others, name: value}
            result = make_result([9.0, 4.0 + len(made), 4.0 + len(made)], environment=PEAKS, **settings)
            result["ops"], result["memory_bytes"], result["resident_bytes"] = OPS, {"weights": 1, "peak_rss": 2}, {}
            result["threads"] = [{"useful_s": 1.0, "barrier_s": 0.0, "starvation_s": 0.0, "idle_s": 0.0}] * threads
            made.append(Process(len(made) + 1, result, {"threads": threads, name: value}, (1, 0)))
    return made


@pytest.fixture
def report(processes: list[Process]) -> Report:
    return make_report(processes)


def test_the_report_names_them(report: Report) -> None:
    for rows in (report.scaling.rows, [row.variant for row in report.efficiency], [r.variant for r in report.memory]):
        assert len({variant_name(row) for row in rows}) == 4
    html = page(report)
    for row in report.scaling.rows:
        assert f">{variant_name(row)}<" in html


def test_each_has_its_line_of_speedups(report: Report) -> None:
    rows = [row for row in report.scaling.rows if row.speedup is not None]
    names = re.findall(r"<title>([^:<]+): 1\.000</title>", plots.speedup(report))
    assert len(names) == len(set(names)) == sum(row.threads == 1 for row in rows) == 2


def test_bases_of_speedups_are_told_apart(report: Report) -> None:
    bases = re.findall(r"T\(1\) of (.+?) [\d.]+ ms", report.scaling.base)
    assert len(bases) == len(set(bases)) == 2


def test_a_workload_names_them(processes: list[Process], report: Report) -> None:
    found: Workload = workload(1, processes, report.memory, lambda *_: [])
    assert len({row_name(row) for of in found.networks for row in of.rows}) == 4


def test_the_tables_of_the_command_line_name_them(report: Report) -> None:
    found = ScalingTable(**vars(report.scaling), experiment_id=1)
    shown = [tables.scaling(found), *analysis_tables.efficiency(report.efficiency),
             *analysis_tables.memory(report.memory)]  # fmt: skip
    named = [{*zip(*(column.cells for column in table.columns[:3]), strict=True)} for table in shown
             if isinstance(table, Table)]  # fmt: skip
    assert [len(names) for names in named] == [4, 4, 4]
