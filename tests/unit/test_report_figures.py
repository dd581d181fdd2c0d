"""The report's page: figures, tables and words, without external resources."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import pytest

from taskloom.analysis.levels import Levels
from taskloom.analysis.processes import Process
from taskloom.analysis.report import page, plots, to_show
from taskloom.analysis.report.page import PRINTED_TIMES
from taskloom.analysis.report.svg import figure, rect, row_name, spans, text
from taskloom.analysis.rows import Pooled
from taskloom.analysis.trace import trace_of
from taskloom.analysis.wording import value_name
from tests.support.present import present
from tests.support.report_example import changed, make_processes, make_report
from tests.support.trace_example import FOUND


@pytest.fixture
def processes(make_result):
    return make_processes(make_result)


@pytest.fixture
def report(processes):
    return make_report(processes)


def test_bars_of_phases_are_their_times_beside_a_line_for_the_step(report):
    """Phases that overlap do not add up to the step."""
    rows = [replace(row, phase_s={"forward": 1.0, "backward": 2.0}) for row in report.scaling.rows]
    drawn = plots.runtime(replace(report, scaling=replace(report.scaling, rows=rows)))
    bars = re.findall(r'<rect x="([\d.]+)"[^>]*? width="([\d.]+)"[^>]*><title>(\w+): ', drawn)
    assert len(bars) == 2 * len(rows)
    begin, second = float(bars[0][0]), float(bars[0][1])  # the width of a second
    for _, width, name in bars:
        assert float(width) == pytest.approx({"forward": 1, "backward": 2}[name] * second, abs=0.02)
    ends = [float(x) for x in re.findall(r'<polyline points="([\d.]+),[^"]*" [^>]*stroke-width="2.5"', drawn)]
    assert [(end - begin) / second for end in ends] == pytest.approx([row.step_s.median for row in rows], abs=0.01)


@pytest.mark.parametrize(("axis", "values"), [("scheduler", ["fork-join", "task"]),
                                              ("scheduler", ["fork-join", "omp-for", "task"]),
                                              ("threads", [1, 2, 3, 4, 8])])  # fmt: skip
def test_labels_of_ratios_name_the_times_in_the_order_of_the_number(axis, values, make_result):
    """The later the value, the shorter its step: every ratio of a first time to a second time is above 1."""
    made: list[Any] = []
    for block in range(10):
        for i, value in enumerate(values):
            step_s = (10 - i) * (1 + 0.001 * ((7 * block + len(made)) % 5))
            result = make_result([9, step_s, step_s], **{"threads": 2, axis: value})
            result["memory_bytes"] = result["resident_bytes"] = {}
            made.append(Process(len(made) + 1, result, {axis: value}, (1, block)))
    report = make_report(made)
    text, names = page(report), [value_name(axis, value) for value in values]
    assert [present(row.ratio) > 1 for row in report.sweep.rows] == [True] * (len(values) - 1)
    for name, row in zip(names[1:], report.sweep.rows, strict=True):
        verb = "are" if axis == "threads" else "is"
        assert f"{name} {verb} {row.ratio:.3f}" in report.conclusion
        assert f"times as fast as {names[0]}" in report.conclusion
    if len(values) == 2:
        assert ">fork-join time / task time<" in text
        assert ">task is faster \u2192<" in text
    else:
        assert ">first time / second time<" in text
        assert ">the second is faster \u2192<" in text
        for name, row in zip(names[1:], report.sweep.rows, strict=True):
            assert f">{names[0]} / {name}, everything else equal<" in text
            assert f"<title>{names[0]} / {name}, everything else equal: {row.ratio:.3f}, {row.verdict}<" in text


def test_a_question_across_the_axis_is_drawn_first(processes):
    """The sweep runs along the scheduler; the question compares numbers of threads."""
    sides = {"scheduler": "task", "threads": 1}, {"scheduler": "task", "threads": 2}
    report = make_report(processes, primary=sides)
    question, text = present(report.sweep.primary), page(report)
    assert (report.sweep.axis, question.axis) == ("scheduler", "threads")
    assert ">first time / second time<" in text
    figures = f"{question.ratio:.3f}, {question.verdict}"
    assert f"<title>1 thread / 2 threads, the question: task: {figures}<" in text
    assert f"<title>fork-join / task, 1 thread: {report.sweep.rows[0].ratio:.3f}, " in text


def test_a_question_without_other_comparisons_has_its_own_labels(processes):
    """No two of these variants differ in the scheduler alone."""
    kept = [p for p in processes if p.variant in ({"scheduler": "fork-join", "threads": 1},
                                                  {"scheduler": "task", "threads": 2})]  # fmt: skip
    report = make_report(kept, primary=(kept[0].variant, kept[1].variant))
    question, text = present(report.sweep.primary), page(report)
    assert report.sweep.rows == []
    assert ">fork-join, 1 thread time / task, 2 threads time<" in text
    assert ">task, 2 threads is faster \u2192<" in text
    assert f"<title>the question: everything else equal: {question.ratio:.3f}, faster<" in text


def test_values_of_an_axis_that_are_settings_are_drawn(make_result):
    made: list[Any] = []
    for block in range(7):
        for value, step_s in ((None, 2.0), ({"qkv": 1}, 1.0 + 0.001 * (block % 3))):
            result = make_result([9, step_s, step_s], threads=2, op_threads=value)
            result["memory_bytes"] = result["resident_bytes"] = {}
            made.append(Process(len(made) + 1, result, {"op_threads": value}, (1, block)))
    report = make_report(made)
    assert report.sweep.rows[0].verdict == "faster"
    assert ">op threads qkv=1 is faster \u2192<" in page(report)


def test_the_page_has_words_for_keys_and_breaks_no_interval(report):
    text = page(report)
    assert "Over best T(1): best one-thread median / T(P)." in text
    assert not re.search(r"speedup_best|efficiency_|_low|_high", text)
    assert text.count("[95\u00a0%]") == 6
    assert re.search(r"<td>2\.00 \[2\.00,\u00a02\.00\]</td>", text)
    assert not re.search(r"\[[\d.,]+ ", "".join(re.findall(r"<t[dh].*?</t[dh]>", text)))


def test_a_ratio_cannot_be_read_backwards(report):
    text = page(report)
    assert "fork-join time / task time (Hodges-Lehmann); above 1: task is faster" in text
    assert "task is faster \u2192" in text


def test_the_page_follows_the_readers_scheme_and_uses_known_colours(report):
    text = page(report)
    known = set(re.findall(r"--([\w-]+):light-dark", text))
    assert set(re.findall(r"var\(--([\w-]+)\)", text)) <= known
    assert not re.search(r'(fill|stroke)="#', text)
    assert "@media print" in text


class Collector(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.addresses, self.handlers = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href", "action", "data")]
        self.handlers += [name for name, _ in attrs if name.startswith("on")]


def test_the_page_needs_nothing_from_elsewhere_and_runs_nothing(report):
    html = page(report)
    found = Collector()
    found.feed(html)
    assert (found.addresses, found.handlers) == ([], [])
    assert {"script", "link", "iframe", "img", "object"} & set(found.tags) == set()
    assert "url(" not in html
    assert "@import" not in html
    assert "tasks or &lt;fork-join&gt;?" in html
    assert "<fork-join>" not in html


def test_every_figure_is_well_formed_and_stays_on_its_page(processes):
    report = make_report(processes, traces={2: trace_of(FOUND), 4: trace_of(FOUND)})
    figures = re.findall(r"<svg.*?</svg>", page(report), re.S)
    labels = [ElementTree.fromstring(svg).get("aria-label") for svg in figures]
    assert labels == [
        "Ratios: fork-join time / task time",
        "Time of a step by variant and phase", "Distribution of samples", "Speedup", "Speedup of forward and backward",
        "Where the threads' time went",
        "Timeline as traced", "Timeline of one step", "Roofline of task (sync step) 1x64, 2 threads", "Forecast",
        "Memory by variant", "Growth of memory",
    ]  # fmt: skip
    for svg in figures:
        root = ElementTree.fromstring(svg)
        left, _, width, height = map(float, present(root.get("viewBox")).split())
        assert "nan" not in svg
        for mark in root.iter():
            for name, least, limit in (("x", left, left + width), ("cx", left, left + width), ("y", 0, height),
                                       ("cy", 0, height)):  # fmt: skip
                if (at := mark.get(name)) and mark.tag.rsplit("}")[-1] in ("text", "circle", "rect"):
                    inside = abs(float(at)) if mark.tag.endswith("text") else float(at)
                    assert least - 1 <= inside <= limit + 1, (root.get("aria-label"), mark.attrib)


def test_a_peak_with_the_compiler_in_it_is_marked_and_not_drawn_beside_the_others(processes):
    usual = memory_plot(processes)
    assert usual.count("<polyline") == 4 + 1  # each variant's, and the legend's
    for process in processes:
        if process.config["scheduler"] == "task" and process.config["threads"] == 2:
            process.result["compiled"] = 24
    html = page(make_report(processes))
    assert html.count("0.0*</td>") == 2  # 2000 bytes, in both tables
    assert "every process of the variant compiled kernels. The peak contains the compiler" in html
    assert memory_plot(processes).count("<polyline") == 3 + 1


def memory_plot(processes):
    (found,) = re.findall(r'<svg[^>]*aria-label="Memory by variant".*?</svg>', page(make_report(processes)), re.S)
    return found


def test_spans_too_narrow_to_point_at_are_a_path_of_their_colour():
    made = spans([(10, 0, 5, "red", "wide"), (10, 5, 5.2, "red", "thin"), (30, 6, 6.3, "red", "thin"),
                  (10, 7, 7.01, "blue", "thin")], 14)  # fmt: skip
    assert made == [
        rect(0, 10, 5, 14, "red", "wide"),
        '<path d="M5.00 17h0.20M6.00 37h0.30" stroke="red" stroke-width="14"/>',
        '<path d="M7.00 17h0.10" stroke="blue" stroke-width="14"/>',
    ]


def test_one_traced_run_of_each_scheduler_is_shown_on_the_most_threads(processes):
    runs = {run_id: (p.config["scheduler"], p.config["threads"]) for run_id, p in enumerate(processes, 1)}
    shown = to_show(processes, set(runs))
    assert [runs[run_id] for run_id in shown] == [("fork-join", 2), ("task", 2)]
    assert to_show(processes, {1, 3, 8}) == [8]
    assert to_show(processes, {1, 3}) == [1, 3]
    assert to_show(processes, ()) == []


def test_a_traced_timeline_is_what_the_trace_holds(processes):
    report = make_report(processes, traces={4: trace_of(FOUND)})
    (row,) = report.traced
    assert (row.run_id, row.threads, row.variant.scheduler) == (4, 2, "task")
    assert [[step, begin, pytest.approx(end)] for step, begin, end in row.steps] == [
        [2, 0.0, 10e-6], [3, pytest.approx(10e-6), 21e-6]
    ]  # fmt: skip
    assert sum(end - begin for *_, begin, end in row.spans) == pytest.approx((17_300 + 4_500) * 1e-9)
    assert {tuple(span[1:3]) for span in row.spans} == {tuple(kind) for kind in FOUND["call_ops"]}
    waits = {kind: end - begin for _, kind, begin, end in row.waits}
    assert waits == {"starvation": pytest.approx(4e-6), "barrier": pytest.approx(8e-6)}
    assert sum(row.busy) / len(row.busy) == pytest.approx((17_300 + 4_500) / 21_000)
    assert row.traced_step_s == pytest.approx(10.5e-6)
    assert row.timed_step_s == pytest.approx(processes[3].median_step_s)
    assert "median step 0.0105 ms traced, 4,012 ms timed" in page(report)


def test_the_page_says_where_the_variance_is(report):
    levels = Levels(step=0.0345, process=0.0123, occasion=None, steps_advised=17)
    shown = page(changed(report, scaling__rows=[replace(row, levels=levels) for row in report.scaling.rows]))
    assert "<td>1.2%</td><td>3.5%</td><td>17</td>" in shown


def test_very_many_samples_are_not_printed(report):
    assert "are not printed" not in page(report)
    shown = page(changed(report, samples__0__processes__0__step_s=[0.5] * PRINTED_TIMES))
    times = PRINTED_TIMES + 2 * 27
    assert f"<p class=paper>{times:,} step times of 28 processes are not printed. <code>taskloom experiments" in shown
    assert "<details class=long><summary>28 processes</summary>" in shown


def test_the_page_says_which_places_a_pooled_ratio_is_about(report):
    pooled = Pooled(2, "fork-join", "task", 3, 21, 1.02, 1.01, 1.03, 0.01, "faster", "these 3 places only", 0.01)
    shown = page(changed(report, sweep__pooled=[pooled]))
    assert ">all 3 places, 2 threads<" in shown
    assert ">21 pairs, these 3 places only<" in shown


def test_a_forecast_that_no_measured_step_checks_says_so(processes):
    assert "Not checked" not in page(make_report(processes))
    alone = page(make_report([process for process in processes if process.config["threads"] == 1]))
    assert "it stays constant. Not checked: no step on more than one thread was measured." in alone


def test_an_image_is_as_wide_as_its_texts_and_a_long_name_has_two_lines():
    short = figure(900, 100, [*row_name(250, 12, "task 4x16, 2 threads"), text(700, 12, "legend")], "x")
    assert short.startswith('<svg viewBox="0 0 900 100" width="900"')
    wide = figure(900, 100, [*row_name(100, 12, 40 * "a" + " &"), text(850, 12, 20 * "b")], "x")
    left, _, width, _ = map(float, present(re.search(r'viewBox="([^"]+)"', wide))[1].split())
    assert left < 100 - 0.55 * 12 * 42
    assert left + width > 850 + 0.55 * 12 * 20
    name = "fork-join, op order diagonals / task, op order layers, the question: unit slice 512, 2 threads"
    lines = [re.findall(r">([^<]+)</text>", part) for part in row_name(250, 12, name)]
    assert len(lines) == 2
    assert " ".join(words for (words,) in lines) == name
    turned = figure(900, 100, ['<g transform="rotate(-90)">' + text(-400, 14, "speedup", "middle") + "</g>"], "x")
    assert 'viewBox="0 0 900 100"' in turned
