"""Thresholds of step times: what is within, above, below and undecided; bad files; their place in reports."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from taskloom.analysis.report import junit
from taskloom.analysis.scaling import ScalingRow
from taskloom.analysis.thresholds import InvalidThreshold, Threshold, judge, parse
from taskloom.cli import main
from tests.support.http_double import scripted
from tests.support.report_example import make_processes, make_report

TASK = {"scheduler": "task", "threads": 2}


@pytest.fixture
def row(make_result: Any) -> Callable[..., ScalingRow]:
    (measured,) = make_report(make_processes(make_result)[3::28]).scaling.rows

    def made(median: float, low: float | None = None, high: float | None = None, **variant: Any) -> ScalingRow:
        step_s = replace(measured.step_s, median=median, low=low, high=high)
        facts = {name: value for name, value in variant.items() if name in TASK}
        return replace(measured, runs=3, step_s=step_s, variant=variant or TASK, **facts)

    return made


@pytest.mark.parametrize(
    ("measured", "state"),
    [
        ((1.04, None, None), "within"),
        ((1.06, None, None), "above"),
        ((0.89, None, None), "below"),
        ((1.04, 1.02, 1.05), "within"),
        ((1.04, 1.02, 1.06), "undecided"),  # the limit is in the interval
        ((1.07, 1.06, 1.08), "above"),
        ((0.89, 0.88, 0.91), "undecided"),
        ((0.89, 0.88, 0.899), "below"),
    ],
)
def test_a_variant_is_judged_by_its_interval(row: Any, measured: tuple[float, ...], state: str) -> None:
    (found,) = judge([Threshold(1.0, -10, 5, TASK)], [row(*measured)])
    assert (found.state, found.relative) == (state, pytest.approx(measured[0] - 1))
    assert "task, 2 threads" in found.sentence
    assert "-10 % to +5 % is allowed" in found.sentence
    assert ("without an interval (3 runs)" in found.sentence) == (measured[1] is None)


def test_a_limit_that_is_not_given_is_none(row: Any) -> None:
    assert judge([Threshold(1.0, upper=5, settings=TASK)], [row(0.1)])[0].state == "within"
    assert judge([Threshold(1.0, lower=-5, settings=TASK)], [row(9.0)])[0].state == "within"


def test_a_setting_that_all_variants_share_is_theirs(row: Any) -> None:
    asked = [Threshold(1.0, upper=5, settings={"precision": "fp32", "threads": 2})]
    assert [found.state for found in judge(asked, [row(1.0)], {"precision": "fp32", "threads": 1})] == ["within"]
    assert [found.state for found in judge(asked, [row(1.0)], {"precision": "bf16"})] == ["missing"]


def test_a_threshold_is_of_every_variant_that_has_its_settings(row: Any) -> None:
    rows = [row(1.0, lr=0.001), row(2.0, lr=0.1), row(1.0, scheduler="serial", threads=1)]
    of_task = judge([Threshold(1.0, upper=5, settings={"scheduler": "task"})], rows)
    assert [(found.settings, found.state) for found in of_task] == [
        ({"lr": 0.001}, "within"), ({"lr": 0.1}, "above")
    ]  # fmt: skip
    assert [found.state for found in judge([Threshold(1.0, upper=5)], rows)] == ["within", "above", "within"]
    (missing,) = judge([Threshold(1.0, upper=5, settings={"threads": 8})], rows)
    assert (missing.state, missing.median_s) == ("missing", None)
    assert "no variant with a result has 8 threads" in missing.sentence


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "a list of [[threshold]]"),
        ({"threshold": []}, "a list of [[threshold]]"),
        ({"threshold": [{"reference": 1, "upper": 5}], "more": 1}, "a list of [[threshold]]"),
        ({"threshold": [3]}, "threshold 1: 3 is not a table"),
        ({"threshold": [{"reference": 1, "upper": 5}, {"refrence": 1}]}, "threshold 2: there is no field 'refrence'"),
        ({"threshold": [{"reference": 1, "upper": 5, "settings": 3}]}, "threshold 1: settings: 3"),
        ({"threshold": [{"upper": 5}]}, "threshold 1: reference: None; accepted are seconds above 0"),
        ({"threshold": [{"reference": 0, "upper": 5}]}, "threshold 1: reference: 0; accepted are seconds above 0"),
        ({"threshold": [{"reference": "1", "upper": 5}]}, "threshold 1: reference: '1'; accepted are numbers from 0"),
        ({"threshold": [{"reference": 1}]}, "neither lower nor upper is given"),
        ({"threshold": [{"reference": 1, "upper": -5}]}, "threshold 1: upper: -5; accepted are numbers from 0"),
        ({"threshold": [{"reference": 1, "lower": 5}]}, "threshold 1: lower: 5; accepted are numbers from -100 to 0"),
        ({"threshold": [{"reference": 1, "upper": True}]}, "threshold 1: upper: True"),
    ],
)
def test_a_bad_file_names_the_field_and_what_is_accepted(given: Any, text: str) -> None:
    with pytest.raises(InvalidThreshold) as refused:
        parse(given)
    assert text in str(refused.value)


def test_reports_have_the_thresholds_and_fail_on_one_that_is_exceeded(make_result: Any, tmp_path: Path) -> None:
    report = make_report(make_processes(make_result))
    medians = [each.step_s.median for each in report.scaling.rows]
    file = tmp_path / "thresholds.toml"

    def reported(reference: float, *options: str) -> Any:
        file.write_text(f"[[threshold]]\nreference = {reference}\nupper = 5\n")
        with scripted() as script:
            script.answer(200, asdict(report))
            command = ["report", "7", "--thresholds", str(file), *options, "--server", script.url]
            return CliRunner().invoke(main, command, catch_exceptions=False)

    within, above = (reported(reference, "--format", "junit") for reference in (2 * max(medians), min(medians) / 2))
    assert (within.exit_code, above.exit_code) == (0, 1)
    failures = [case.find("failure") for case in ElementTree.fromstring(above.stdout).findall("testcase")]
    assert [each.get("type") for each in failures if each is not None].count("above") == len(medians)
    cases = ElementTree.fromstring(within.stdout)
    assert int(cases.get("tests") or 0) == len(cases.findall("testcase"))
    text = reported(min(medians) / 2, "--format", "markdown").stdout
    assert text.count("is above its limits") == len(medians)
    found = json.loads(reported(2 * max(medians), "--json").stdout)
    assert [each["state"] for each in found["thresholds"]] == ["within"] * len(medians)
    assert "threshold of" not in junit(report)
    file.write_text("[[threshold]]\nupper = 5\n")
    done = CliRunner().invoke(main, ["report", "7", "--thresholds", str(file)])
    assert (done.exit_code, "reference: None" in " ".join(done.output.split())) == (2, True)
