"""Recordings of different hours are combined by occasion."""

import pytest

from bench.combine import combined, occasions, table
from bench.ratios import ratio, told


def record(at, ratios, **command):
    runs = [
        {"batch": 4, "seq": 64, "threads": 2, "precision": "fp32", "variant": variant, "round": i,
         "config": {"warmup": 1}, "step_s": [9.0, s, s]}
        for i, value in enumerate(ratios)
        for variant, s in (("task", 1.0 + 0.1 * i), ("torch-compile", (1.0 + 0.1 * i) * value))
    ]  # fmt: skip
    options = [text for name, value in command.items() for text in (f"--{name.replace('_', '-')}", str(value))]
    return {"schema": "taskloom.bench.step/1", "at": at, "machine": {"cpu_model": "CPU"}, "command": options,
            "runs": runs}  # fmt: skip


def test_recordings_within_an_hour_are_one_occasion():
    times = ["2026-11-21T23:50:00+00:00", "2026-11-21T20:00:00+00:00", "2026-11-21T20:40:00+00:00"]
    assert occasions(times) == [1, 0, 0]


def test_two_occasions_say_what_they_are_about():
    made = [record("2026-11-21T20:00:00+00:00", [1.5, 1.52, 1.51])]
    made.append(record("2026-11-22T00:00:00+00:00", [1.8, 1.82, 1.81]))
    (row,) = combined([*made, record("2026-11-21T20:30:00+00:00", [1.49])], "task")
    assert (row["occasions"], row["rounds"], row["scope"]) == (2, [4, 3], "these 2 occasions only")
    assert row["ratio"] == pytest.approx((1.505 * 1.81) ** 0.5, rel=1e-3)
    assert row["ratio_interval"][0] < row["ratio"] < row["ratio_interval"][1]
    assert (row["lowest"], row["highest"]) == pytest.approx((1.505, 1.81), rel=1e-3)
    assert row["between_occasions"] > 10 * row["between_rounds"]
    assert row["advised"] == 1
    assert "these 2 occasions only" in table({"at": "2026-11-22T00:00:00", "records": ["a"], "rows": [row]})


def test_six_occasions_are_a_sample():
    made = [record(f"2026-11-{day}T20:00:00+00:00", [1.5 + 0.01 * day, 1.52 + 0.01 * day]) for day in range(10, 16)]
    (row,) = combined(made, "task")
    assert row["scope"] == "occasions like these 6"
    assert row["ratio_interval"] == pytest.approx([1.61, 1.66], abs=1e-2)


def test_what_was_asked_otherwise_is_another_case():
    at = "2026-11-21T20:00:00+00:00"
    assert len(combined([record(at, [1.5]), record(at, [1.7], grad_clip=1)], "task")) == 2


def test_recordings_whose_runs_say_how_they_were_clipped_go_with_those_whose_command_does():
    at = "2026-11-21T20:00:00+00:00"
    both = record(at, [1.5], grad_clip="0,1")
    both["runs"] = [{**run, "grad_clip": clip} for clip in (0.0, 1.0) for run in both["runs"]]
    rows = combined([both, record(at, [1.5]), record(at, [1.7], grad_clip=1)], "task")
    assert [(row["case"], row["rounds"]) for row in rows] == [
        ("B4 T64, 2 threads, fp32", [2]), ("B4 T64, 2 threads, fp32, grad-clip 1", [2]),
    ]  # fmt: skip


def metg(at, seconds):
    """Sweeps of two systems: `seconds` has their overheads per task in each round. An iteration takes 1 us."""
    sweeps = [
        {"pattern": "fft", "system": system, "round": i, "points": [
            {"grain": grain, "tasks": 100, "threads": 2, "elapsed_s": 50 * (grain * 1e-6 + overhead)}
            for grain in (1000, 100, 10, 1)
        ]}
        for i, pair in enumerate(seconds)
        for system, overhead in zip(("ours task", "LLVM tasks"), pair, strict=True)
    ]  # fmt: skip
    return {"schema": "taskloom.bench.metg/1", "at": at, "machine": {"cpu_model": "CPU"}, "command": [],
            "config": {"kernel": "compute"}, "sweeps": sweeps}  # fmt: skip


def test_granularities_are_combined_by_occasion():
    made = [metg(f"2026-11-{day}T20:00:00+00:00", [(5e-6, 50e-6), (5e-6, 50e-6)]) for day in (10, 11, 12)]
    (row,) = combined(made)
    assert (row["case"], row["variant"], row["occasions"]) == ("METG, fft, compute", "LLVM tasks", 3)
    assert row["ratio"] == pytest.approx(10, rel=0.2)


def test_schedulers_are_combined_against_the_first_row():
    runs = [{"variant": variant, "round": i, "step_s": [9.0, s, s]}
            for i in range(2) for variant, s in (("fork-join", 1.0), ("task", 0.8))]  # fmt: skip
    made = {"schema": "taskloom.bench.schedulers/1", "at": "2026-11-21T20:00:00+00:00", "runs": runs,
            "machine": {"cpu_model": "CPU"}, "command": ["--warmup", "1"],
            "rows": [{"variant": "fork-join"}]}  # fmt: skip
    (row,) = combined([made])
    assert (row["variant"], row["ratio"]) == ("task", pytest.approx(0.8))


def test_rounds_that_drift_are_recorded_without_an_interval():
    mixed = [1 + 0.01 * (7 * i % 12) for i in range(12)]
    assert ratio(mixed, [1.0] * 12)["ratio_interval"] is not None
    assert ratio(sorted(mixed), [1.0] * 12)["ratio_interval"] is None


def test_two_rounds_of_an_occasion_leave_no_interval():
    """Beside many rounds, a variance of two covers too little."""
    many = record("2026-11-21T20:00:00+00:00", [1.5 + 0.01 * (i % 3) for i in range(20)])
    for few, known in (([1.8, 1.82], False), ([1.8, 1.82, 1.81], True)):
        (row,) = combined([many, record("2026-11-22T00:00:00+00:00", few)], "task")
        assert (row["ratio_interval"] is not None) is known


def test_fewer_than_six_rounds_are_recorded_without_an_interval():
    assert ratio([1.2] * 5, [1.0] * 5)["ratio_interval"] is None
    assert told(None) == "-"
    assert told(ratio([1.2] * 6, [1.0] * 6)["ratio_interval"]) == "1.200 to 1.200"
