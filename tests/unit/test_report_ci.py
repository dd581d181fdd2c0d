"""A report as Markdown and as JUnit XML: what CI systems show says what the document does."""

from __future__ import annotations

import copy
from typing import Any
from xml.etree import ElementTree

import markdown_it
import pytest

from taskloom.analysis.report import junit, markdown
from tests.support.report_example import make_document, make_processes

HOSTILE = "*a* | b_c_ <img src=x> `d` [e](http://x) @everyone \x07\n# f"


@pytest.fixture
def document(make_result):
    return make_document(make_processes(make_result))


def rendered(text: str) -> ElementTree.Element:
    page = markdown_it.MarkdownIt("commonmark").enable("table").render(text)
    return ElementTree.fromstring(f"<div>{page}</div>")


def test_markdown_has_the_answer_and_each_comparison(document: dict[str, Any]) -> None:
    text, sweep = " ".join("".join(rendered(markdown(document)).itertext()).split()), document["sweep"]
    for point in (document["question"], *document["answer"]):
        assert " ".join(point.split()) in text
    assert len(sweep["rows"]) == 2
    for row in sweep["rows"]:
        figures = f"{row['ratio']:.3f} [{row['ratio_low']:.3f}, {row['ratio_high']:.3f}] {row['verdict']}"
        threads = "1 thread" if row["at"]["threads"] == 1 else "2 threads"
        assert f"{threads} task against fork-join {figures}" in text
    for row in document["scaling"]["rows"]:
        threads = "1 thread" if row["threads"] == 1 else "2 threads"
        assert f"{row['scheduler']}, {threads} {row['step_s']['median']:.4g} s {row['runs']}" in text
    assert "above 1, the first named is faster" in text
    faster = max(sweep["rows"], key=lambda row: row["ratio"])
    assert (faster["verdict"], faster["b"]) == ("faster", "task")  # 4 s against 6 s: a ratio above 1
    assert "Experiment 7, finished, 28 runs, node n1." in text


def test_markdown_shows_foreign_text_as_it_is(document: dict[str, Any]) -> None:
    document["question"] = HOSTILE
    page = rendered(markdown(document))
    assert (page.findtext("h2") or "") == " ".join(HOSTILE.replace("\x07", "\N{REPLACEMENT CHARACTER}").split())
    assert {element.tag for element in page.iter()} <= {
        "div", "h2", "h3", "p", "strong", "ul", "li", "table", "thead", "tbody", "tr", "th", "td"
    }  # fmt: skip


def test_junit_has_a_test_for_each_comparison(document: dict[str, Any]) -> None:
    rows = document["sweep"]["rows"]
    rows[0]["verdict"], rows[1]["verdict"] = "undecided", "slower"
    suite = ElementTree.fromstring(junit(document))
    cases = suite.findall("testcase")
    assert [case.get("name") for case in cases] == [f"task against fork-join, {n}" for n in ("1 thread", "2 threads")]
    assert {case.get("classname") for case in cases} == {document["question"]}
    skipped, failure = cases[0].find("skipped"), cases[1].find("failure")
    assert skipped is not None
    assert failure is not None
    assert (skipped.get("message"), failure.get("message")) == (rows[0]["sentence"], rows[1]["sentence"])
    assert failure.get("type") == "slower"
    assert [suite.get(name) for name in ("tests", "failures", "skipped", "errors")] == ["2", "1", "1", "0"]
    for case, row in zip(cases, rows, strict=True):
        assert row["reason"] in (case.findtext("system-out") or "")


@pytest.mark.parametrize(
    ("failing", "failures", "skipped"), [(("undecided",), 1, 0), (("same", "faster"), 1, 1), ((), 0, 1)]
)
def test_the_verdicts_that_fail_are_chosen(
    document: dict[str, Any], failing: tuple[str, ...], failures: int, skipped: int
) -> None:
    rows = document["sweep"]["rows"]
    rows[0]["verdict"], rows[1]["verdict"] = "undecided", "faster"
    suite = ElementTree.fromstring(junit(document, failing))
    assert (len(suite.findall(".//failure")), len(suite.findall(".//skipped"))) == (failures, skipped)


def test_the_question_comes_first_and_once(document: dict[str, Any]) -> None:
    question = copy.deepcopy(document["sweep"]["rows"][1])
    question |= {"primary": True, "axis": "scheduler"}
    document["sweep"]["rows"][1]["primary"] = True
    document["sweep"]["primary"] = question
    suite = ElementTree.fromstring(junit(document))
    assert [case.get("name") for case in suite] == [f"task against fork-join, {n}" for n in ("2 threads", "1 thread")]


def test_junit_takes_what_xml_cannot_contain(document: dict[str, Any]) -> None:
    document["question"] = HOSTILE
    suite = ElementTree.fromstring(junit(document))
    assert all("\N{REPLACEMENT CHARACTER}" in str(case.get("classname")) for case in suite)
    assert suite.get("failures") == "0"
