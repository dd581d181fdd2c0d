"""The peer with the smallest METG on each pattern, and the order of OpenMP runtimes, from a recording."""

import pytest

from bench.peers import finest, order, table, values
from gpt2core.spec.schedulers import RUNTIMES

OVERHEAD_S = {
    "ours task": 1e-6, "ours fork-join": 0.4e-6, "GCC tasks": 12e-6, "GCC loop": 0.2e-6, "GCC loop as ours": 0.3e-6,
    "ours omp-task libgomp": 5e-6, "ours omp-for libgomp": 0.3e-6,
    "ours omp-task libiomp5": 4e-6, "ours omp-for libiomp5": 0.25e-6,
}  # fmt: skip
GRAINS = tuple(1 << i for i in range(14, -1, -1))


@pytest.fixture
def record():
    """Sweeps of systems with known overheads per task, a little larger each round. The second pattern doubles them."""
    sweeps = [
        {"pattern": pattern, "system": system, "round": i, "points": [
            {"grain": grain, "tasks": 100, "threads": 2,
             "elapsed_s": 50 * (grain * 4e-9 + overhead_s * more * (1 + 0.01 * i))}
            for grain in GRAINS
        ]}
        for pattern, more in (("fft", 1), ("tree", 2))
        for i in range(6)
        for system, overhead_s in OVERHEAD_S.items()
    ]  # fmt: skip
    return {"config": {"kernel": "compute", "pattern": ["fft", "tree"]}, "sweeps": sweeps}


def test_the_finest_tasks_and_the_finest_loop_stand_beside_ours(record):
    fft, tree = finest(record)
    assert (fft["pattern"], fft["tasks"], fft["loop"]) == ("fft", "ours omp-task libiomp5", "GCC loop")
    assert fft["tasks_ratio"] == pytest.approx(4, rel=0.05)
    assert fft["loop_ratio"] == pytest.approx(0.2, rel=0.05)
    low, high = fft["loop_interval"]
    assert low <= fft["loop_ratio"] <= high < 1
    assert tree["loop_s"] == pytest.approx(2 * fft["loop_s"], rel=0.05)


def test_a_peer_without_a_measured_metg_is_not_the_finest(record):
    for sweep in record["sweeps"]:
        if sweep["system"] == "GCC loop" and sweep["pattern"] == "fft":
            sweep["points"] = sweep["points"][:3]  # its METG is smaller than any measured grain
    assert values(record)["fft", "GCC loop"] == {}
    assert finest(record)[0]["loop"] == "ours omp-for libiomp5"


def test_runtimes_come_in_the_order_of_their_metg(record):
    first, second = order(record)
    assert (first["runtime"], second["runtime"]) == ("libiomp5", "libgomp")
    assert first["omp-task"]["ratio"] is None
    assert second["omp-task"]["ratio"] == pytest.approx(5 / 4, rel=0.05)
    assert second["omp-task"]["overhead_s"] == pytest.approx(1.5 * 5e-6 * 1.025, rel=0.4)
    assert first["omp-for"]["metg_s"] == pytest.approx(2**0.5 * values(record)["fft", "ours omp-for libiomp5"][3],
                                                       rel=0.05)  # fmt: skip
    assert set(RUNTIMES) > {row["runtime"] for row in (first, second)}


def test_the_table_names_both(record):
    text = table(record)
    assert "| fft | " in text
    assert "GCC loop, 0." in text
    assert text.index("| libiomp5 | omp-task |") < text.index("| libgomp | omp-task |")
