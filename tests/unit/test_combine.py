"""Recordings of different hours are combined by occasion."""

import math
from statistics import correlation, stdev

import pytest

from bench.combine import by_occasion, combined, occasions, table
from bench.ratios import limits, ratio

HOURS = ("2026-11-21T20:00:00+00:00", "2026-11-21T22:00:00+00:00", "2026-11-22T00:00:00+00:00")


def on_occasions(schema, *contents):
    """The figures of recordings two hours apart, by name: unit and values."""
    made = [{"schema": f"taskloom.bench.{schema}", "at": at, "machine": {"cpu_model": "CPU"}, **each}
            for at, each in zip(HOURS, contents, strict=False)]  # fmt: skip
    return {row["figure"]: (row["unit"], row["values"]) for row in by_occasion(made)}


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


def numbers(*written, **changes):
    """The occasions of recordings that were written at these times of one day; the last one has other properties."""
    made = [record(f"2026-11-21T{at}:00+00:00", [1.5]) for at in written]
    return occasions([*made[:-1], {**made[-1], **changes}])


def test_recordings_within_two_hours_are_one_occasion():
    assert numbers("23:50", "20:00", "21:40") == [1, 0, 0]


def test_an_occasion_lasts_two_hours_from_its_first_recording():
    assert numbers("02:06", "02:24", "04:05", "04:06", "06:07") == [0, 0, 0, 1, 2]


def test_occasions_of_other_machines_and_benchmarks_are_counted_apart():
    elsewhere = {"machine": {"cpu_model": "another"}}
    assert numbers("10:00", "12:30", "12:10", **elsewhere) == [0, 1, 0]
    assert numbers("10:00", "12:30", "12:10", schema="taskloom.bench.metg/1") == [0, 1, 0]


def test_rounds_that_drift_have_no_interval_in_a_combination_either():
    drifting = [1 + 0.01 * i for i in range(12)]
    (row,) = combined([record("2026-11-21T20:00:00+00:00", drifting)], "task")
    assert row["ratio_interval"] is None
    assert any("drift" in finding or "resemble" in finding for finding in row["diagnosis"])


def test_a_variant_whose_losses_disagree_has_no_ratio():
    made = record("2026-11-21T20:00:00+00:00", [1.5, 1.6])
    rows = [{"variant": "torch-compile", "ratio": None}]
    made["comparisons"] = [{"label": "B4 T64, 2 threads, fp32", "rows": rows}]
    assert combined([made], "task") == []


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
    report = {"at": "2026-11-22T00:00:00", "records": ["a"], "rows": [row], "figures": []}
    assert "these 2 occasions only" in table(report)


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


def sliced(at, *command):
    """Two rounds of three slicings, of which one was chosen automatically, and a process of another case."""
    seconds = {(2, 64): (1.0, 1.1), (1, 64): (1.1, 1.21), (4, 64): (2.0,)}
    case = {"batch": 4, "seq": 64, "scheduler": "task", "threads": 2}
    runs = [{**case, "round": i, "slices": list(way), "step_s": [9.0, s, s]}
            for way, by_round in seconds.items() for i, s in enumerate(by_round)]  # fmt: skip
    runs.append({**case, "threads": 1, "round": 0, "slices": [2, 64], "step_s": [9.0, 5.0, 5.0]})
    ways = [{"slices": list(way), "median_step_s": by_round[0]} for way, by_round in seconds.items()]
    return {"schema": "taskloom.bench.slices/1", "at": at, "machine": {"cpu_model": "CPU"}, "command": list(command),
            "runs": runs, "comparisons": [
                {**case, "label": "B4 T64, task, 2 threads", "auto": [2, 64], "ratio": 1.02, "ways": ways}
            ]}  # fmt: skip


def test_slices_are_combined_against_the_automatic_ones():
    made = [sliced(at, "--forecast=", "--precision", "bf16") for at in ("2026-11-21T20:00:00", "2026-11-22T20:00:00")]
    rows = {row["variant"]: row for row in combined(made)}
    assert rows.keys() == {"1x64", "4x64"}
    assert rows["1x64"]["case"] == "B4 T64, task, 2 threads, bf16"
    assert (rows["1x64"]["ratio"], rows["1x64"]["rounds"]) == (pytest.approx(1.1), [2, 2])
    assert (rows["4x64"]["ratio"], rows["4x64"]["rounds"]) == (pytest.approx(2.0), [1, 1])
    found = {row["figure"]: row["values"] for row in by_occasion([sliced("2026-11-21T20:00:00")])}
    assert found["B4 T64, task, 2 threads, fp32: step of auto (2x64), of the best slices'"] == [pytest.approx(102)]
    assert found["B4 T64, task, 2 threads, fp32: 1x64, step"] == [pytest.approx(1100)]


def test_heartbeats_are_combined_against_a_run_without():
    arms = {"none": (3600.0, 1.0, 0.002), "many": (1.0, 1.02, 0.004)}
    runs = [{"arm": arm, "round": i, "total_s": s + 0.1 * i * s} for i in range(3) for arm, (_, s, _) in arms.items()]
    rows = [{"arm": arm, "heartbeat_s": every_s, "median_total_s": s, "agent_share": share, "usual_cost": (s - 1) / 15}
            for arm, (every_s, s, share) in arms.items()]  # fmt: skip
    made = {"runs": runs, "rows": rows, "command": []}
    (row,) = combined(
        [{"schema": "taskloom.bench.agent-cost/1", "at": HOURS[0], "machine": {"cpu_model": "CPU"}} | made]
    )
    assert (row["case"], row["variant"], row["ratio"]) == ("heartbeats", "many", pytest.approx(1.02))
    found = on_occasions("agent-cost/1", made)
    assert found["heartbeats every 1 s: timed steps"] == ("s", [1.02])
    assert found["heartbeats every 1 s: agent, of the machine's time"] == ("%", [pytest.approx(0.4)])
    costs = [values for name, (_, values) in found.items() if "one heartbeat" in name]
    assert costs == [[pytest.approx(0.02 / 15 * 100)]]


def test_observing_is_combined_against_bare_runs():
    seconds = {"bare": 1.0, "observed": 1.01, "traced": 1.02}
    runs = [{"variant": variant, "round": i, "step_s": [9.0] * 4 + [s, s, s]}
            for i in range(2) for variant, s in seconds.items()]  # fmt: skip
    given = {"model": "tiny", "batch": 1, "seq": 64, "scheduler": "task", "threads": 1}
    made, case = {"given": given, "runs": runs, "command": ["--model", "tiny"]}, "observing, B1 T64, task, 1 thread"
    one = {"schema": "taskloom.bench.observing/1", "at": HOURS[0], "machine": {"cpu_model": "CPU"}, **made}
    assert [(row["case"], row["variant"], round(row["ratio"], 4)) for row in combined([one])] == [
        (f"{case}, model tiny", "observed", 1.01), (f"{case}, model tiny", "traced", 1.02),
    ]  # fmt: skip
    assert on_occasions("observing/1", made)["tiny: traced, step"] == ("ms", [1020])


def test_canaries_are_combined_from_their_repetitions(make_result):
    """The figures that a recording contains are those of the day's analysis; its runs are those of any day."""
    steps, canaries = [1.0, 1.01, 1.02, 1.03, 1.02, 1.01], [0.5, 0.51, 0.5, 0.51, 0.5, 0.51]

    def runs_of(steps):
        return [{**make_result([9.0, s, s]), "canary": {"times_s": [c, c, 1.6 * c, 1.6 * c]}}
                for s, c in zip(steps, canaries, strict=False)]  # fmt: skip

    made = {"case": "tiny", "sd_target": 0.5, "sd_canary": 0.5, "sd_over_canary": 0.5, "correlation": 1}
    found = on_occasions("canary/1", {**made, "runs": runs_of(steps)}, {**made, "runs": runs_of(s**2 for s in steps)})
    of_step = 100 * stdev(map(math.log, steps))
    assert found["tiny: standard deviation of step"] == ("%", [pytest.approx(of_step), pytest.approx(2 * of_step)])
    of_canary = 100 * stdev(map(math.log, canaries))
    assert found["tiny: standard deviation of canary"] == ("%", [pytest.approx(of_canary)] * 2)
    both = correlation([math.log(s) for s in steps], canaries)
    assert found["tiny: correlation of step and canary"][1] == [pytest.approx(both)] * 2
    assert on_occasions("canary/1", {**made, "runs": runs_of(steps[:5])}) == {}


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
    assert limits(None) == "-"
    assert limits(ratio([1.2] * 6, [1.0] * 6)["ratio_interval"]) == "1.200 to 1.200"


def step(milliseconds, share):
    op = {"time_share": 0.3, "bound": "compute"}
    return {
        "comparisons": [{"label": "case", "rows": [
            {"variant": "task", "median_step_s": milliseconds / 1e3, "peak_rss_bytes": 3 << 20},
        ]}],
        "headlines": [{"label": "case", "peer": "torch", "memory_share": 0.62, "clipping": {"ratio": 1.04}}],
        "roofs": [{"label": "case, task", "ops": [
            {**op, "op": "fc_dinp", "time_s": 3.0, "registers_share": share},
            {**op, "op": "logits", "time_s": 1.0, "registers_share": share + 0.04},
            {**op, "op": "adamw", "time_s": 9.0, "registers_share": 0.1, "bound": "memory"},
        ]}],
    }  # fmt: skip


def test_figures_of_a_step_have_a_value_for_each_occasion():
    found = on_occasions("step/1", step(900, 0.88), step(930, 0.90), step(915, 0.87))
    assert found["case: task, step"] == ("ms", pytest.approx([900, 930, 915]))
    assert found["case: task, peak RSS"] == ("MiB", [3, 3, 3])
    assert found["case: peak RSS, of torch's"] == ("%", pytest.approx([62, 62, 62]))
    assert found["case: step with clipping, of a step without"] == ("%", pytest.approx([104] * 3))
    assert found["case, task: products, of the registers' rate"] == ("%", pytest.approx([89, 91, 88]))
    assert found["case, task: products, of the step"] == ("%", pytest.approx([60, 60, 60]))
    bounds = [100 - 30 * (0.12 + 0.08), 100 - 30 * (0.10 + 0.06), 100 - 30 * (0.13 + 0.09)]
    assert found["case, task: share of the bound"] == ("%", pytest.approx(bounds))


def test_recordings_of_one_occasion_count_by_their_median():
    made = [{"schema": "taskloom.bench.step/1", "at": at, "machine": {"cpu_model": "CPU"}, **step(ms, 0.9)}
            for at, ms in ((HOURS[1], 950), (HOURS[0], 900), ("2026-11-21T20:30:00+00:00", 920))]  # fmt: skip
    (found,) = [row for row in by_occasion(made) if row["figure"] == "case: task, step"]
    assert found["values"] == pytest.approx([910, 950])
    shown = table({"at": HOURS[2], "records": ["a"], "rows": [], "figures": [found]})
    assert "| CPU | case: task, step | ms | 910, 950 |" in shown
    assert "Ratio:" not in shown


def test_node_time_is_summed_over_runs():
    parts = ("delivering", "claiming", "starting", "planning", "compiling", "preparing", "warmup", "timed", "finishing")
    run = {f"{part}_s": 1.0 for part in parts} | {"timed_s": 12.0}
    found = on_occasions("node-time/1", {"models": {"small": [run, run | {"starting_s": 3.0}]}})
    assert found["small: timed steps, of the node's time"] == ("%", pytest.approx([100 * 24 / 42]))
    assert found["small: warm-up, of the node's time"] == ("%", pytest.approx([100 * 2 / 42]))
    assert found["small: from claim to first step"] == ("s", [5.0])


def test_figures_of_a_start():
    fresh = {"first_step_s": 6.1, "compiling_s": 4.9, "measuring_s": 0.9}
    warm = [{"first_step_s": seconds} for seconds in (0.3, 0.2, 0.4)]
    found = on_occasions("start/1", {"warm": {"tiny": warm}, "fresh": {"tiny": fresh}})
    assert [values for _, values in found.values()] == [[0.3], [6.1], [4.9], [0.9]]


def test_comparisons_of_commits_are_combined_by_commits_and_case():
    commits = {"ours": "a1", "before": "b2"}

    def outside(at, ratio, revisions=commits, threads=2):
        of = {"ours": {"overhead": 1.1 * ratio}, "before": {"overhead": 1.1}}
        return {"schema": "taskloom.bench.overhead/1", "at": at, "machine": {"cpu_model": "CPU"}, "command": [],
                "revisions": revisions, "model": "tiny", "threads": threads,
                "rounds": [{"round": i, "variant": "task none", "of": of} for i in range(2)],
                "rows": [{"variant": "task none", "ours": 1.1 * ratio, "before": 1.1}]}  # fmt: skip

    def seconds(at, *ratios):
        row = {"case": "tiny:task:2", "what": "step", "ours_s": 0.002, "before_s": 0.004, "round_ratios": list(ratios),
               "turns": 2}  # fmt: skip
        return {"schema": "taskloom.bench.revisions/2", "at": at, "machine": {"cpu_model": "CPU"}, "command": [],
                "revisions": commits, "rows": [row]}  # fmt: skip

    made = [outside(HOURS[0], 0.9), outside(HOURS[1], 1.1), outside(HOURS[1], 1.3, {"ours": "c3", "before": "b2"}),
            outside(HOURS[1], 1.4, threads=1), seconds(HOURS[0], 0.5, 0.5), seconds(HOURS[1], 0.5)]  # fmt: skip
    rows = {row["case"]: row for row in combined(made)}
    assert {row["variant"] for row in rows.values()} == {"ours"}
    first = rows["tiny, task none, 2 threads, outside products, a1 against b2"]
    assert (first["occasions"], first["rounds"]) == (2, [2, 2])
    assert first["ratio"] == pytest.approx((0.9 * 1.1) ** 0.5)
    assert rows["tiny, task none, 2 threads, outside products, c3 against b2"]["ratio"] == pytest.approx(1.3)
    assert rows["tiny, task none, 1 thread, outside products, a1 against b2"]["ratio"] == pytest.approx(1.4)
    assert rows["tiny:task:2, step, a1 against b2"]["rounds"] == [2, 1]
    assert rows["tiny:task:2, step, a1 against b2"]["ratio"] == pytest.approx(0.5)
    found = {row["figure"]: row["values"] for row in by_occasion([made[0], made[4]])}
    assert found["tiny, task none, P2: threads' time of b2, of its products'"] == [pytest.approx(110)]
    assert found["tiny:task:2: step of a1"] == [2]


def test_metg_of_few_sweeps_is_left_out():
    def record(at, turns):
        row = {"case": "metg", "what": "METG, task", "ours_s": 2e-7, "before_s": 1e-7, "round_ratios": [2.0, 2.0]}
        return {"schema": "taskloom.bench.revisions/2", "at": at, "machine": {"cpu_model": "CPU"}, "command": [],
                "revisions": {"ours": "a1", "before": "b2"}, "rows": [row | {"turns": turns}]}  # fmt: skip

    (row,) = combined([record(HOURS[0], 31), record(HOURS[1], 32)])
    assert row["rounds"] == [2]


def test_the_memory_of_a_server_is_combined():
    part = {"at": HOURS[0], "machine": {"cpu_model": "CPU"}, "workers": 5, "beats": 2000, "beats_per_s": 3,
            "rss_bytes": [2 << 20, 3 << 20, 1 << 20]}  # fmt: skip
    (row,) = by_occasion([{"schema": "taskloom.bench.server/1", "parts": {"sqlite memory": part}}])
    assert (row["figure"], row["values"], row["unit"]) == (
        "sqlite memory: most memory of the server, heartbeats of 5 workers", [3], "MiB"
    )  # fmt: skip


def test_traces_are_combined_by_file():
    made = ({"exports": [{"file": "trace.prv", "s": seconds, "bytes": 10_500_000}]} for seconds in (0.4, 0.5))
    found = on_occasions("traces/1", *made)
    assert found == {"trace.prv, reading and writing": ("s", [0.4, 0.5]), "trace.prv, size": ("MB", [10.5, 10.5])}


def test_dashboards_are_combined_by_database_at_the_95th_percentile():
    report = {"database": "sqlite", "lists": {}, "traces": {}, "pages": {"Now": {
        "first_paint_ms": list(range(1, 21)), "data_shown_ms": [5], "data_shown_first_ms": 90,
    }}}  # fmt: skip
    found = on_occasions("ui/5", report)
    assert found["sqlite: Now: first paint, p95"] == ("ms", [20])


def test_a_recording_of_the_server_ends_with_its_last_part():
    def of(at, last, slowest):
        cpu = {"cpu_model": "CPU"}
        latency = {"at": at, "machine": cpu, "latency_s": [0.01] * 99 + [slowest], "submit_s": 0.5}
        largest = {"at": last, "machine": cpu, "largest": {
            "submit": {"cpu_s": 0.7, "grown_bytes": 2 << 20}, "retry": {"cpu_s": 0.4, "grown_bytes": 5 << 20},
        }}  # fmt: skip
        parts = {"sqlite latency": latency, "sqlite largest": largest}
        return {"schema": "taskloom.bench.server/1", "parts": parts}

    made = [of(HOURS[0], "2026-11-21T20:50:00+00:00", 0.03), of(HOURS[1], "2026-11-21T22:50:00+00:00", 0.05)]
    found = {row["figure"]: row["values"] for row in by_occasion(made)}
    assert found["sqlite latency: lease after submission was sent, p50"] == [10, 10]
    assert found["sqlite largest: largest requests, most CPU"] == [0.7, 0.7]
    assert found["sqlite largest: largest requests, most memory"] == [5, 5]
    made[1] = of("2026-11-21T21:30:00+00:00", "2026-11-21T21:40:00+00:00", 0.05)  # 50 minutes later
    assert by_occasion(made)[0]["values"] == [10]


def test_figures_of_a_server_beside_readers():
    beside = {"heartbeat_s": [0.1] * 99 + [0.2], "claim_s": [0.3], "rss_bytes": [1 << 20, 3 << 20]}
    part = {"at": HOURS[0], "machine": {"cpu_model": "CPU"}, "measured": 10, "first_s": {"report": 1.5},
            "again_s": {"report": [0.01, 0.03]}, "idle": beside, "beside": beside,
            "unread": {**beside, "claim_s": [0.4]}}  # fmt: skip
    rows = by_occasion([{"schema": "taskloom.bench.server/1", "parts": {"sqlite readers": part}}])
    found = {row["figure"].removeprefix("sqlite readers: "): row["values"][0] for row in rows}
    assert found["report of 10 runs, first answer"] == 1.5
    assert found["report of 10 runs, later answers, p50"] == pytest.approx(20)
    assert found["claim, beside readers, p99"] == pytest.approx(300)
    assert found["claim, beside readers and unread exports, p99"] == pytest.approx(400)
    assert found["heartbeat, nobody reads, p99"] == pytest.approx(101)  # the least value above 99 of 100
    assert found["most memory of the server, beside readers"] == 3


def test_schedulers_and_granularities_have_figures():
    rows = [{"variant": "task", "median_step_s": 0.9, "idle_share": 0.01}]
    found = on_occasions("schedulers/1", {"rows": rows})
    assert [values for _, values in found.values()] == [[pytest.approx(900)], [pytest.approx(1)]]
    (ours, _) = by_occasion([metg(HOURS[0], [(5e-6, 50e-6), (6e-6, 50e-6)])])
    assert (ours["figure"], ours["unit"]) == ("METG, fft, ours task", "us")
    assert ours["values"] == pytest.approx([11], rel=0.1)  # half of a thread's time is overhead: 5 and 6 us
