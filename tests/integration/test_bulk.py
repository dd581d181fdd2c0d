"""Rows that are inserted in bulk equal the given rows, in the same order."""

from typing import Any

import pytest

from taskloom.server import bulk

pytestmark = pytest.mark.both_databases
NAME = 'a "quoted" \\ name: ü, 界, \U0001f9f5'
BASE: dict[str, Any] = {
    "model": {"layers": 1, "heads": 1, "channels": 8192, "vocab": 256, "context": 64},  # memory beyond 32 bits
    "scheduler": "fork-join", "op_threads": {"qkv": 1}, "threads": 2, "cores": [3, 1], "seq": 16, "eps": 1e-9,
}  # fmt: skip


@pytest.mark.parametrize("chunk", [1, 4, 1000])
def test_every_run_has_its_values_in_the_planned_order(api, monkeypatch, chunk):
    monkeypatch.setattr(bulk, "CHUNK", chunk)
    made = api.submit(name=NAME, base=BASE, axes={"seed": [5, 1 << 60], "lr": [1e-5, 0.25, 1]}, trace="first",
                      repetitions=2, priority=3)  # fmt: skip
    planned = api.post("/experiments?dry_run=true", made["request"])["order"]
    runs = api.runs(made["id"])
    assert [run["id"] for run in runs] == sorted(run["id"] for run in runs)
    for key in ("position", "block", "repetition", "variant"):
        assert [run[key] for run in runs] == [run[key] for run in planned]
    for run in runs:
        spec = api.get(f"/runs/{run['id']}")["spec"]
        assert spec["model"] == {**BASE["model"], "name": "custom"}
        assert {name: spec[name] for name in run["variant"]} == run["variant"]
        assert [spec[name] for name in ("eps", "cores", "op_threads", "save")] == [1e-9, [3, 1], {"qkv": 1}, None]
    stored = "cores_needed, pinned_cores, memory_needed_bytes > 2000000000, trace = (repetition = 1), rank"
    assert api.sql(f"SELECT DISTINCT {stored} FROM run") == [(2, "1,3", True, True, -3)]
    needed = "SELECT number, cores_needed, pinned_cores, memory_needed_bytes > 2000000000 FROM block ORDER BY number"
    assert api.sql(needed) == [(0, 2, "1,3", True), (1, 2, "1,3", True)]
    assert {run["state"] for run in runs} == {"queued"}
    assert len(api.get(f"/experiments/{made['id']}/changes")["items"]) == 12
