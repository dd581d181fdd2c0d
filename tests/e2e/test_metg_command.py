"""`taskloom metg` as a process, with tiny sweeps: its output, not its speed."""

from __future__ import annotations

import json
import os
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests.support.command_line import json_of, taskloom

pytestmark = pytest.mark.slow

SMALL = ("--threads", "1", "--width", "4", "--repetitions", "1", "--max-grain", "64", "--point-s", "0.001")


def test_metg_prints_its_result_and_draws_it(tmp_path: Path) -> None:
    figure = tmp_path / "metg.svg"
    patterns = ("--pattern", "stencil_1d", "--pattern", "tree")
    found = json_of(taskloom("metg", *SMALL, *patterns, "--plot", str(figure), "--json"))
    assert found["schema"] == "taskloom.metg/1"
    assert set(found) == {
        "schema", "config", "environment", "peak_per_s", "unit", "busy_cores", "warnings", "metg", "sweeps"
    }  # fmt: skip
    pairs = [(row["pattern"], row["scheduler"]) for row in found["metg"]]
    assert pairs == [(p, s) for p in ("stencil_1d", "tree") for s in ("task", "fork-join")]
    for row in found["metg"]:
        assert {"metg_s", "metg_min_s", "metg_max_s", "reached", "repetitions", "grains"} < set(row)
        assert all(set(point) == {"grain", "task_s", "efficiency"} for point in row["grains"])
        assert row["grains"][0]["grain"] == 64
    root = ElementTree.parse(figure).getroot()
    assert len(root.findall("{*}polyline")) == 4


def test_metg_prints_tables_for_people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Buffers are eight times as large as the caches: gigabytes on some machines.
    small = "from gpt2core.node import host\nhost.last_level_cache_bytes = lambda cores: 20 << 20\n"
    (tmp_path / "sitecustomize.py").write_text(small)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    done = taskloom("metg", *SMALL, "--scheduler", "task", "--kernel", "memory")
    assert done.returncode == 0, done.stderr
    for word in ("METG(50 %)", "stencil_1d", "time per task", "efficiency", "GB/s"):
        assert word in done.stdout


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (("--pattern", "star"), "pattern"),
        (("--scheduler", "serial"), "scheduler"),
        (("--width", "0"), "width"),
        (("--threads", "0"), "threads"),
        (("--cores", "4000"), "cores"),
        (("--point-s", "-1"), "point_s"),
        (("--plot", "figure.png"), "plot"),
        (("--plot", "no/such/folder/figure.svg"), "plot"),
    ],
)
def test_a_value_that_is_not_accepted_is_named(arguments: tuple[str, ...], field: str) -> None:
    done = taskloom("metg", *arguments, "--json")
    assert done.returncode == 2
    error = json.loads(done.stderr.splitlines()[-1])
    assert error["field"] == field
    assert error["accepted"]
