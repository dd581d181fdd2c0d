"""The workload of networks from finished runs: every figure by hand."""

from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import replace
from html import escape
from typing import Any

import pytest

from bench import six_networks
from taskloom import analysis_tables
from taskloom.analysis.growth import Growth, GrowthPoint
from taskloom.analysis.memory import MemoryRow, memory
from taskloom.analysis.processes import Process
from taskloom.analysis.report import ReportExperiment, build, page
from taskloom.analysis.variants import by_variant, variant_of
from taskloom.analysis.workload import workload
from taskloom.analysis.workload_sentences import of_several
from tests.support.report_example import as_read

MIB = 1 << 20
PEAKS = {"peaks": {"threads": {"1": {"gflop_per_s": 100.0, "triad_gb_per_s": 10.0},
                               "2": {"gflop_per_s": 200.0, "triad_gb_per_s": 10.0}}}}  # fmt: skip
# seconds of a step: (model, mode, data, batch, scheduler, threads)
STEP_S = {
    ("tiny", "train", "synthetic", 4, "fork-join", 2): 0.6,
    ("tiny", "train", "synthetic", 4, "task", 2): 0.4,
    ("tiny", "train", "synthetic", 4, "task", 1): 0.8,
    ("tiny", "infer", "synthetic", 4, "fork-join", 2): 0.15,
    ("tiny", "infer", "synthetic", 4, "task", 2): 0.1,
    ("tiny", "train", "synthetic", 8, "task", 2): 0.8,
    ("tiny", "train", "stdlib", 4, "task", 2): 0.5,
    ("lstm-tiny", "train", "synthetic", 4, "task", 2): 0.3,
}
NAMES = ("model", "mode", "data", "batch", "scheduler", "threads")
REFUSED = "perf_event_open: the kernel forbids it (EACCES)"


def result_of(make_result, settings, step_s, counters=None):
    """Two timed steps. fc: 8e9 flop and 1e9 bytes in 0.6 of the threads' time; adamw: no flop, 1e9 bytes in 0.2."""
    infer = settings["mode"] == "infer"
    made = make_result([9.0, step_s, step_s], environment=PEAKS, phase_share={"data": 0.1, "forward": 0.2},
                       weights_sha256="" if infer else "w", **settings)  # fmt: skip
    busy_s = 2 * step_s * settings["threads"]
    made["ops"] = [
        {"op": "adamw", "phase": "update", "calls": 4, "time_s": 0.2 * busy_s, "flop": 0, "bytes": 10**9},
        {"op": "fc", "phase": "forward", "calls": 8, "time_s": 0.6 * busy_s, "flop": 8 * 10**9, "bytes": 10**9},
    ][infer:]
    arenas = {"weights": 10, "gradients": 10, "optimizer": 20, "activations": 5 * settings["batch"], "temporary": 1}
    if infer:
        arenas |= {"gradients": 0, "optimizer": 0, "activations": settings["batch"]}
    made["memory_bytes"] = {name: MIB * size for name, size in arenas.items()} | {"peak_rss": 200 * MIB}
    made["resident_bytes"], made["compiled"] = {"arenas": MIB}, 0
    made["counters"] = counters or {"threads": [], "unavailable": {"cache_misses": REFUSED, "instructions": REFUSED}}
    return made


@pytest.fixture
def processes(make_result):
    made: list[Any] = []
    for block in range(7):
        for place, step_s in STEP_S.items():
            settings = dict(zip(NAMES, place, strict=True))
            result = result_of(make_result, settings, step_s * (1 + 0.001 * ((3 * block + len(made)) % 5)))
            made.append(Process(len(made) + 1, result, settings, (1, block), block=block))
    return made


def memory_rows(processes):
    return [
        MemoryRow(variant_of(group), memory([p.result["memory_bytes"] for p in group],
                                            [p.result["resident_bytes"] for p in group],
                                            [p.result["compiled"] for p in group], 4, 64, 128, lambda _, __: {}))
        for group in by_variant(processes)
    ]  # fmt: skip


def growth_of(groups, rows):
    assert len(groups) == len(rows)
    first = groups[0][0]
    assert (first.mode, first.config["data"]) == ("train", "synthetic")
    points = [GrowthPoint(4, 61 * MIB, 15 * MIB, 10 * MIB, 200 * MIB, None)]
    return [Growth("batch", 4, {"seq": 64}, "all", points, 15 / 61, 10, f"Growth of {first.config['model']['name']}.")]


@pytest.fixture
def found(processes):
    return workload(3, processes, memory_rows(processes), growth_of)


def row_of(network, **wanted):
    rows = [row for row in network.rows
            if all(getattr(row, name, getattr(row.variant, name, None)) == value for name, value in wanted.items())]
    assert len(rows) == 1
    return rows[0]


def test_networks_are_apart_and_their_rows_begin_with_training_on_generated_data(found):
    assert [(of.network, of.model, len(of.rows)) for of in found.networks] == [("lstm", "lstm-tiny", 1),
                                                                               ("gpt2", "tiny", 7)]  # fmt: skip
    order = [(row.mode, row.data, row.batch) for row in found.networks[1].rows]
    assert order == [("train", "synthetic", 4)] * 3 + [("train", "synthetic", 8), ("train", "stdlib", 4)] + [
        ("infer", "synthetic", 4)
    ] * 2


def test_phases_and_ops_by_hand(found):
    row = row_of(found.networks[1], mode="train", data="synthetic", batch=4, scheduler="fork-join")
    step_s = row.step_s
    assert step_s == pytest.approx(0.6, rel=0.004)
    assert row.step_low_s is not None
    assert row.step_low_s <= step_s <= row.step_high_s
    assert {phase.phase: pytest.approx(phase.share) for phase in row.phases} == {
        "data": 0.1, "forward": 0.2, "loss": 0.1, "backward": 0.5, "update": 0.1,
    }  # fmt: skip
    assert row.phases[1].time_s == pytest.approx(0.2 * step_s)
    fc, adamw = row.ops
    assert (fc.op, fc.phase, fc.calls, fc.share) == ("fc", "forward", 4, pytest.approx(0.75))
    assert fc.time_s == pytest.approx(0.6 * 2 * step_s, rel=0.004)
    assert fc.gflop_per_s == pytest.approx(8 / (0.6 * 2 * step_s), rel=0.004)  # 8 Gflop in two steps
    assert fc.gb_per_s == pytest.approx(1 / (0.6 * 2 * step_s), rel=0.004)
    assert (fc.intensity, fc.bound) == (8.0, "memory")
    assert fc.roof_share == pytest.approx(fc.gflop_per_s / 80)  # 8 flop a byte x 10 GB/s
    assert (adamw.intensity, adamw.gflop_per_s) == (None, 0.0)
    assert adamw.roof_share == pytest.approx(adamw.gb_per_s / 10)


def test_ratios_by_hand(found):
    lstm, tiny = found.networks
    fork, task = tiny.modes
    assert (fork.scheduler, fork.time) == ("fork-join", pytest.approx(0.25, rel=0.01))
    assert (task.scheduler, task.threads, task.batch) == ("task", 2, 4)
    assert task.arenas == pytest.approx((10 + 4 + 1) / (10 + 10 + 20 + 20 + 1))
    assert task.peak == 1.0
    (data,) = tiny.data
    assert (data.real, data.generated, data.scheduler) == ("stdlib", "synthetic", "task")
    assert data.time == pytest.approx(1.25, rel=0.01)
    assert data.real_data_s == pytest.approx(0.05, rel=0.01)
    assert {(each.mode, each.a, each.b, each.verdict) for each in tiny.schedulers} == {
        ("train", "fork-join", "task", "faster"), ("infer", "fork-join", "task", "faster"),
    }  # fmt: skip
    assert all(each.ratio == pytest.approx(1.5, rel=0.01) for each in tiny.schedulers)
    assert lstm.modes == lstm.data == lstm.schedulers == []


def test_answers_say_what_the_figures_are(found):
    lstm, tiny = found.networks
    answers = " ".join(tiny.answers)
    assert "Training (task, 2 threads): forward" in answers
    assert "Its costliest op is fc (forward), 75% of the ops' time." in answers
    assert "A step of inference (task, 2 threads, batch 4) takes 25% " in answers
    assert "of the time of a training step (ratio of medians, not tested); its arenas have 25% of the size" in answers
    assert "and its process's peak is 100%." in answers
    assert "With real data (stdlib) a training step (task, 2 threads) takes 1.2" in answers
    assert [each.sentence for each in tiny.schedulers] == [
        text.partition(": ")[2] for text in tiny.answers if "as fast as fork-join" in text
    ]
    assert len(lstm.answers) == 1


def test_answers_of_several_networks_name_each(found):
    training, inference, faster, of_inference, arenas, data = found.answers
    left_out = ". Phases below 1% of a step are left out."
    assert training == (
        "Training: memory-bound are lstm-tiny (forward and update); partly memory-bound are tiny (forward and update)"
        + left_out
    )
    assert inference == "Inference: memory-bound are tiny (forward)" + left_out
    pattern = r", fork-join time / task time: task is faster with tiny \(1\.\d{3} \[1\.\d{3}, \d\.\d{3}\]\)\."
    assert re.fullmatch("Training" + pattern, faster)
    assert re.fullmatch("Inference" + pattern, of_inference)
    assert arenas.startswith("Inference needs this share of the arenas of training: tiny (25%). It takes 25% of ")
    assert data.startswith("With real data a training step takes 1.2")


def test_networks_with_one_share_share_it_in_a_sentence(found):
    tiny = found.networks[1]
    near = [replace(of, time=of.time * 1.001) for of in tiny.modes]
    *_, arenas, _ = of_several([tiny, replace(tiny, model="other", modes=near)])
    assert "It takes 25% of the time of a training step, and 100% of a process's peak memory" in arenas


def test_without_peaks_rates_stay_and_the_reason_is_given(processes):
    for process in processes:
        process.result["environment"].pop("peaks")
    found = workload(3, processes, memory_rows(processes), growth_of)
    row = found.networks[1].rows[0]
    assert (row.mfu, row.phases[1].memory_bound, row.ops[0].roof_share, row.ops[0].bound) == (None,) * 4
    assert row.ops[0].gflop_per_s > 0
    assert "were not measured" in found.networks[1].answers[0]


def test_counters_or_the_reason(make_result):
    settings = dict(zip(NAMES, next(iter(STEP_S)), strict=True))
    counted = {"threads": [{"instructions": 6e9, "cycles": 2e9, "cache_misses": 10**7}] * 2}
    made = [Process(1, result_of(make_result, settings, 0.5, counted), settings)]
    counters = workload(1, made, memory_rows(made), growth_of).networks[0].rows[0].counters
    assert (counters.instructions, counters.cycles, counters.cache_misses) == (6e9, 2e9, 1e7)  # two threads, two steps
    assert counters.miss_gb_per_s == pytest.approx(2e7 * 64 / 1.0 / 1e9)
    assert counters.missing == {}
    made = [Process(1, result_of(make_result, settings, 0.5), settings)]
    counters = workload(1, made, memory_rows(made), growth_of).networks[0].rows[0].counters
    assert (counters.instructions, counters.miss_gb_per_s) == (None, None)
    assert counters.missing["instructions"] == counters.missing["miss_gb_per_s"] == REFUSED
    assert "without" in counters.missing["cycles"]


def test_no_run_is_an_empty_workload():
    assert workload(3, [], [], growth_of).networks == []


def test_an_experiment_without_an_axis_of_schedulers_compares_none(make_result):
    settings = dict(zip(NAMES, next(iter(STEP_S)), strict=True))
    made = [Process(1, result_of(make_result, settings, 0.5), {"threads": 2})]
    assert workload(1, made, memory_rows(made), growth_of).networks[0].schedulers == []


def test_the_page_and_the_tables_have_each_network(processes, found):
    asked = ReportExperiment(3, "workload of tiny", "finished", len(processes), {"succeeded": len(processes)},
                             "2026-11-28T12:00:00+00:00", {"template": "workload"})  # fmt: skip
    report = as_read(build(asked, processes, {}, memory_rows(processes), workload=found))
    assert report.workload == found
    *answers, reservations = report.answer
    assert answers == found.answers
    assert reservations.startswith("It is not known whether other processes ran during")
    html = page(report)
    (overview,) = re.findall(r"<h2>All networks</h2>.*?</table>", html)
    (_, *lstm), (_, *tiny) = (re.findall(r">([^<>]*)</td>", line) for line in overview.split("<tr>")[2:])
    assert tiny[:2] == ["forward (partly), update (partly)", "forward"]
    assert re.fullmatch(r"fork-join / task 1\.\d{3} \[1\.\d{3},\xa0\d\.\d{3}\], faster", tiny[2])
    assert tiny[4:] == ["25.0%", "24.6%", "100.0%"]
    assert lstm[1:] == ["-"] * 6
    assert "<h2>tiny (gpt2)</h2>" in html
    assert "<h2>lstm-tiny (lstm)</h2>" in html
    for title in ("Time of a step by phase", "Time by op type", "Memory", "Growth of memory"):
        assert html.count(f'aria-label="{title}"') == 2
    assert html.count("Roofline of train, B4 T64, task, 2 threads") == 2
    assert f"Not counted (instructions, cache misses): {REFUSED}." in html
    assert "Runtime, speedup, samples" not in html  # figures over all variants would mix the networks
    assert "1.5" in html.partition("the second is")[2][:600]
    shown = [part if isinstance(part, str) else str(part.title) for part in analysis_tables.workload(found)]
    assert shown[0] == "lstm-tiny (lstm)"
    assert {*found.networks[1].answers, *found.answers} <= set(shown)
    assert all(f"<li>{escape(answer)}</li>" in html for of in found.networks for answer in of.answers)
    kept = json.loads(json.dumps(six_networks.figures(dataclasses.asdict(report))))
    row = kept["networks"][1]["rows"][0]
    assert (row["scheduler"], row["threads"], row["step_s"]) == ("fork-join", 2, pytest.approx(0.6, rel=0.004))
    assert row["phases"]["update"][1] == found.networks[1].rows[0].phases[-1].memory_bound
    assert "samples" not in kept


def test_a_workload_without_results_says_so():
    asked = ReportExperiment(3, "workload", "cancelled", 2, {"cancelled": 2}, "2026-11-28T12:00:00+00:00", {})
    report = build(asked, [], {}, [], workload=workload(3, [], [], growth_of))
    assert report.answer == ["No run has succeeded: there is nothing to conclude."]
    page(as_read(report))
