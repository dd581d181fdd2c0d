"""The report of known results: its conclusions, and a page without external resources."""

from dataclasses import replace
from typing import Any

import pytest

from taskloom.analysis.family import Family
from taskloom.analysis.processes import Process
from taskloom.analysis.report import ReportCalibration, ReportExperiment, build, concluded, page, plots
from taskloom.analysis.report.card import report_card
from taskloom.analysis.report.conclusion import answer
from taskloom.analysis.rows import Pooled
from taskloom.analysis.sentences import reason
from tests.support.present import present
from tests.support.report_example import as_read, changed, make_processes, make_report


@pytest.fixture
def processes(make_result):
    return make_processes(make_result)


@pytest.fixture
def report(processes):
    return make_report(processes)


def test_the_conclusion_says_what_the_verdicts_do(report):
    text = report.conclusion
    assert text == " ".join(report.answer)
    verdict, disturbed, fastest, causes, ahead = report.answer
    assert verdict.startswith(report.sweep.verdict.sentence)
    assert verdict.startswith("task is 1.")
    assert disturbed.startswith("No run was disturbed. Measurement rules not fully kept: ")
    assert fastest.startswith("The variant with the smallest median is task")
    assert "useful" in causes
    assert "memory-bound" in causes
    assert "On 128 cores" in ahead
    assert "The variant with the smallest median is task (sync step) 1x64, 2 threads: 4,012 ms a step" in text
    assert "proven faster than " in text  # not faster than all others, so no variant is called the fastest
    assert "times as fast as fork-join on 2 threads" in text
    assert "Its model-FLOP utilisation is 0.0% of the peak of matrix products" in text  # a tiny model in 4 s
    assert "Under fork-join 1x64, 2 threads, the threads spend 66.1% of their time in tasks, 33.9% at barriers" in text
    assert "Forward is partly memory-bound" in text or "Forward is not memory-bound" in text
    assert "forecasts the measured steps on more within 0." in text
    assert "On 128 cores" in text
    assert "rules not fully kept: 7, 8, 11" not in text  # there is evidence: threads' times are split
    assert "rules not fully kept: 8, 11" in text


def test_several_schedulers_are_told_apart_and_their_runtime_is_named(make_result):
    made: list[Any] = []
    for block in range(7):
        for scheduler in ("fork-join", "omp-for", "omp-task"):
            runtime = {"runtime": "libomp", "version": "LLVM OMP 5.0"} if scheduler != "fork-join" else None
            environment = {} if runtime is None else {"scheduler": runtime}
            result = make_result([9, 4 + 0.01 * block, 4], scheduler=scheduler, threads=2, environment=environment)
            result["memory_bytes"] = result["resident_bytes"] = {}
            made.append(Process(len(made) + 1, result, {"scheduler": scheduler}, (1, block)))
    report = make_report(made)
    assert report.environment.runtimes == {"libomp (LLVM OMP 5.0)": ["omp-for", "omp-task"]}
    assert "omp-for and omp-task used the OpenMP runtime libomp (LLVM OMP 5.0)." in report.conclusion
    text = page(report)
    assert "first time / second time (Hodges-Lehmann); above 1: the second is faster" in text
    assert ">fork-join / omp-task, everything else equal<" in text
    assert ">omp-task (sync step) 1x64, 2 threads<" in text


def held(report):
    return {rule.number: rule.holds for rule in report.card}


def test_the_card_says_which_rules_hold(processes):
    holds = held(make_report(processes))
    assert holds == {**dict.fromkeys(range(1, 12), "yes"), 8: "no", 11: "no"}
    card = make_report(processes, stop={"rel_ci": 0.02}).card
    assert (card[7].holds, card[7].evidence) == ("partly", "rel_ci = 0.02; not ended yet")
    for ended, kept in (("narrow-enough", "yes"), ("budget", "partly")):
        reached = {"reason": ended, "repetitions": 7, "rel_ci": 0.01}
        card = make_report(processes, stopping=reached, stop={"rel_ci": 0.02}).card
        assert card[7].holds == kept
    processes[3].result["environment"]["kernel"] = "Other"
    processes[3].result["losses"][-1] += 1e-9
    holds = held(make_report(processes))
    assert (holds[6], holds[9]) == ("no", "no")
    holds = held(make_report(processes[:8]))
    assert (holds[3], holds[5]) == ("no", "partly")


def test_only_what_is_proven_faster_than_all_others_is_the_fastest(report):
    assert "fastest" not in report.conclusion
    fastest = answer(changed(report, sweep__beats_share=1.0))[2]
    assert fastest.startswith("The fastest variant is task")
    assert "It is proven faster than all others that compute the same." in fastest
    assert "It is proven faster than none of the others that compute the same." in answer(
        changed(report, sweep__beats_share=0.0)
    )[2]


def test_a_forecast_that_misses_what_was_measured_is_not_given(report):
    assert "no other number of cores is forecast" not in page(report)
    (one,) = report.forecast.forecasts
    missed = changed(report, forecast__forecasts__0=replace(one, worst_error=0.41, given=False))
    assert answer(missed)[4] == (
        "Forecasts for more cores differ from the measured steps by 41% or more, so none is given."
    )
    doubtful = "Largest error against a measured step: 41.0%, more than 10%: no other number of cores is forecast."
    assert doubtful in page(missed)
    unchecked = answer(changed(report, forecast__forecasts__0__worst_error=None))
    assert unchecked[4].startswith("Forecasts for more cores are not checked")
    assert len(answer(changed(report, forecast__forecasts=[]))) == 4


def test_text_plot_and_table_give_the_same_forecasts(processes):
    """Twice the measured time on two threads: the forecast misses it, and only what was measured is shown."""
    good = make_report(processes)
    assert [one.given for one in good.forecast.forecasts] == [True]
    assert {p.cores for p in good.forecast.forecasts[0].curves[0].points} >= {1, 2, 128}
    assert ">128<" in plots.forecast(good.forecast.forecasts[0])
    slow = [
        replace(p, result={**p.result, "step_s": [2 * s for s in p.result["step_s"]]})
        if p.config["threads"] == 2 else p
        for p in processes
    ]  # fmt: skip
    report = make_report(slow)
    (one,) = report.forecast.forecasts
    assert (one.given, present(one.worst_error) > 0.1) == (False, True)
    assert {p.cores for curve in one.curves for p in curve.points} == {1, 2}
    assert "no other number of cores is forecast" in report.forecast.missing[0]
    assert report.timeline is None
    assert "so none is given" in report.conclusion
    assert ">128<" not in plots.forecast(one)
    assert "no other number of cores is forecast" in page(report)


def test_without_a_comparison_the_fastest_variant_comes_first(report):
    points = answer(changed(report, sweep__rows=[], sweep__pooled=[]))
    assert points[0].startswith("The variant with the smallest median is task")
    assert points[1].startswith("No run was disturbed.")
    assert len(points) == 4


def test_an_interval_over_steps_of_one_process_says_so(make_result):
    steps_s = [9.0, *(0.1 + 0.001 * (i % 7) for i in range(20))]
    result = make_result(steps_s, scheduler="serial", threads=1)
    result["memory_bytes"] = result["resident_bytes"] = {}
    one = make_report([Process(1, result, {"scheduler": "serial"})])
    assert any("95 % interval over the steps of its only process" in text for text in answer(one))


def test_disturbed_processes_are_never_passed_over(report):
    report = changed(report, disturbed="2 of 28 runs disturbed (foreign load 10 to 87 %)")
    sentence = "2 of 28 runs disturbed (foreign load 10 to 87 %); they are marked and included in all figures."
    assert answer(report)[1].startswith(sentence)
    assert f"<li>{sentence}" in page(concluded(report))


def test_places_that_are_undecided_for_one_reason_share_a_sentence(report):
    row = next(row for row in report.sweep.rows if row.at["threads"] == 2)
    few = reason("too-few-in-family", needed=9, of=Family(8), unit="pairs")
    drift = reason("dependent", findings=["a drift over the blocks"])
    places = [
        replace(row, at={"batch_slice": 1, "token_slice": token, "threads": 2}, verdict="undecided", why=why,
                ratio=ratio, ratio_low=0.9, ratio_high=1.6, sentence=f"It is undecided at {token}.")
        for token, ratio, why in ((32, 1.1, few), (64, 1.2, few), (128, 1.3, drift))
    ]  # fmt: skip
    text = answer(changed(report, sweep__rows=places))[0]
    assert text == (
        report.sweep.verdict.sentence
        + " It is undecided whether task or fork-join is faster: fork-join time / task time 1.100 [0.900, 1.600] with "
        "slices 1x32, 2 threads; 1.200 [0.900, 1.600] with slices 1x64, 2 threads. There are too few runs: one of 8 "
        "comparisons needs at least 9 pairs of runs. It is undecided at 128."
    )


def test_runs_with_foreign_load_stay_or_are_left_out_as_declared(processes):
    processes[0].result["validity"] = {"foreign": {"cores": [0], "foreign_s": 5.0, "busy_s": 20.0, "own_s": 15.0}}
    asked = ReportExperiment(7, "", "finished", 28, {}, "2026-11-21T12:00:00+00:00", {})
    stay, left = (build(asked, processes, {}, [], leave_out_disturbed=rule) for rule in (False, True))
    assert (stay.left_out, left.left_out) == ([], [1])
    assert (stay.design.processes, left.design.processes) == (28, 27)
    assert stay.marks == left.marks == ["run 1: foreign load: other processes used 31.2% of its cores"]
    assert page(as_read(stay)).count(f"<li>{stay.marks[0]}</li>") == 1
    assert sum(len(row.processes) for row in left.samples) == 28
    assert "1 run with foreign load is left out, as requested; the report lists it with" in left.answer[1]
    assert stay.disturbed == left.disturbed == "1 of 28 runs disturbed (foreign load 31 %)"


def test_an_experiment_without_results_has_a_report_too():
    report = make_report([])
    assert report.conclusion.startswith("No run has succeeded")
    assert "<svg" not in page(report)


def test_results_that_tell_little_have_a_report_too(make_result):
    bare = [Process(i, make_result([9, 1, 1]), {}) for i in (1, 2)]
    asked = ReportExperiment(1, "", "finished", 2, {"succeeded": 2}, "2026-11-21T12:00:00+00:00", {})
    html = page(build(asked, bare, {}, []))
    assert "How long does a step take?" in html
    assert "were not measured" in html


def test_the_subtitle_has_what_all_runs_share(make_result):
    made: list[Any] = []
    for batch in (2, 4):
        result = make_result([9, 1, 1], batch=batch)
        result["memory_bytes"] = result["resident_bytes"] = {}
        made.append(Process(batch, result, {"batch": batch}))
    assert ">Experiment 7, submitted 2026-11-21 12:00 UTC" in page(make_report(made))
    assert "2 variants. tiny, T\u00a064, fp32, data stdlib." in page(make_report(made))
    assert "1 variant. tiny, B\u00a02, T\u00a064, fp32, data stdlib." in page(make_report(made[:1]))


def test_the_answer_says_which_runs_have_no_result(make_result):
    states = {"succeeded": 1, "failed": 2, "cancelled": 0, "queued": 3}
    asked = ReportExperiment(1, "", "active", 6, states, "2026-11-21T12:00:00+00:00", {})
    sentences = build(asked, [Process(1, make_result([9, 1, 1]), {"lr": 0.1})], {}, []).answer
    assert sentences[0].startswith("The only variant with a result is task (sync step) 1x64, lr 0.1, 1 thread: ")
    assert sentences[1].startswith("5 of 6 runs have no result (2 failed, 3 queued). ")


def test_what_computes_as_no_other_is_proven_faster_than_nothing(make_result):
    made = [Process(n, make_result([9, n, n], batch=n), {"batch": n}, (1, 0)) for n in (1, 2)]
    asked = ReportExperiment(1, "", "finished", 2, {"succeeded": 2}, "2026-11-21T12:00:00+00:00", {})
    assert "proven faster" not in build(asked, made, {}, []).conclusion


def test_the_question_of_an_experiment_with_another_name_is_a_sentence(make_result):
    asked = ReportExperiment(1, "nightly", "finished", 2, {"succeeded": 2}, "2026-11-21T12:00:00+00:00", {})
    made = [Process(n, make_result([9, 1, 1], threads=n), {"threads": n, "token_slice": 8 * n}) for n in (1, 2)]
    sides = {"threads": 1}, {"threads": 2}
    assert build(asked, made, {}, [], primary=sides).question == "Are 2 threads faster than 1 thread?"
    question = build(asked, made, {}, []).question
    assert question == "How does the time of a step depend on threads and token slice?"


def test_a_forecast_that_misses_is_not_left_out_unsaid(report):
    (good,) = report.forecast.forecasts
    both = changed(report, forecast__forecasts=[good, replace(good, worst_error=0.41, given=False)])
    assert "This leaves out 1 of 2 forecasts, which miss by up to 41%." in answer(both)[4]


def test_what_no_result_shows_is_not_called_undisturbed(processes):
    for process in processes[:3]:
        del process.result["validity"]
    blind = make_report(processes)
    assert blind.unwatched == [1, 2, 3]
    unknown = "It is not known whether other processes ran during 3 of 28 runs."
    assert f"{unknown} No run was seen to be" in blind.conclusion
    assert (blind.card[6].holds, blind.card[6].evidence) == (
        "partly", "no evidence of other processes in 3 results",
    )  # fmt: skip


def test_the_card_counts_comparisons_without_a_test_and_settings_that_differ(report):
    untested = {"p_value": None, "p_adjusted": None, "paired": False, "differs": ["clip: 0 and 1"]}
    report = changed(report, sweep__rows__0=replace(report.sweep.rows[0], **untested))
    card = report_card(report)
    assert card[4].holds == "partly"
    assert card[4].evidence.endswith("; 1 of 2 rows without a valid test")
    one = Pooled(2, "fork-join", "task", 2, 14, 1.0, None, None, 0.01, "undecided", "", None)
    pooled = [one, replace(one, p_adjusted=None), replace(one, unit="places")]
    report = changed(report, sweep__pooled=pooled)
    assert report_card(report)[4].evidence.startswith("1 comparison and 1 pooled ratio along scheduler")
    assert (card[5].holds, card[5].evidence) == ("no", "clip: 0 and 1")
    assert report_card(changed(report, scaling__rows__0__step_s__low=None))[2].holds == "partly"
    calibration = ReportCalibration(1, "n1", processes=7, detectable=0.01, false_alarms=0, comparisons=3)
    report = changed(report, design__stop={"rel_ci": 0.02}, calibration=calibration)
    evidence = "1.00% with 7 processes per side, judged by signs, since their number was not fixed beforehand"
    assert (report_card(report)[10].holds, report_card(report)[10].evidence) == ("partly", evidence)


def test_the_card_names_values_that_are_not_independent(report):
    assert report_card(report)[4].holds == "yes"
    report = changed(report, sweep__rows__0__diagnosis=["two levels, 5.0% apart"])
    assert report_card(report)[4].holds == "yes"
    drift = ["a drift over the blocks (Kendall's tau +0.90)"]
    found = report_card(changed(report, sweep__rows__0__why__findings=drift))[4]
    assert found.holds == "partly"
    assert found.evidence.endswith("; dependent values, so no valid interval, in 1 comparison")
