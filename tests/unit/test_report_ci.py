"""A report as Markdown and as JUnit XML: what CI systems show says what the report does."""

from __future__ import annotations

from xml.etree import ElementTree

import markdown_it
import pytest

from taskloom.analysis.report import Report, junit, markdown
from taskloom.analysis.rows import Pooled, PrimaryRow
from tests.support.report_example import changed, make_processes, make_report

HOSTILE = "*a* | b_c_ <img src=x> `d` [e](http://x) @everyone \x07\n# f"


@pytest.fixture
def report(make_result):
    return make_report(make_processes(make_result))


def rendered(text: str) -> ElementTree.Element:
    page = markdown_it.MarkdownIt("commonmark").enable("table").render(text)
    return ElementTree.fromstring(f"<div>{page}</div>")


def test_markdown_has_the_answer_and_each_comparison(report: Report) -> None:
    text, sweep = " ".join("".join(rendered(markdown(report)).itertext()).split()), report.sweep
    for point in (report.question, *report.answer):
        assert " ".join(point.split()) in text
    assert len(sweep.rows) == 2
    for row in sweep.rows:
        figures = f"{row.ratio:.3f} [{row.ratio_low:.3f}, {row.ratio_high:.3f}] {row.verdict}"
        threads = "1 thread" if row.at["threads"] == 1 else "2 threads"
        assert f"{threads} task against fork-join {figures}" in text
    for of in report.scaling.rows:
        threads = "1 thread" if of.threads == 1 else "2 threads"
        assert f"{of.scheduler}, {threads} {of.step_s.median:.4g} s {of.runs}" in text
    assert "above 1, the first named is faster" in text
    faster = max(sweep.rows, key=lambda row: row.ratio or 0)
    assert (faster.verdict, faster.b) == ("faster", "task")  # 4 s against 6 s: a ratio above 1
    assert "Experiment 7, finished, 28 runs, node n1." in text


def test_markdown_shows_foreign_text_as_it_is(report: Report) -> None:
    page = rendered(markdown(changed(report, question=HOSTILE)))
    assert (page.findtext("h2") or "") == " ".join(HOSTILE.replace("\x07", "\N{REPLACEMENT CHARACTER}").split())
    assert {element.tag for element in page.iter()} <= {
        "div", "h2", "h3", "p", "strong", "ul", "li", "table", "thead", "tbody", "tr", "th", "td"
    }  # fmt: skip


def test_junit_has_a_test_for_each_comparison(report: Report) -> None:
    report = changed(report, sweep__rows__0__verdict="undecided", sweep__rows__1__verdict="slower")
    rows = report.sweep.rows
    suite = ElementTree.fromstring(junit(report))
    cases = suite.findall("testcase")
    assert [case.get("name") for case in cases] == [f"task against fork-join, {n}" for n in ("1 thread", "2 threads")]
    assert {case.get("classname") for case in cases} == {report.question}
    skipped, failure = cases[0].find("skipped"), cases[1].find("failure")
    assert skipped is not None
    assert failure is not None
    assert (skipped.get("message"), failure.get("message")) == (rows[0].sentence, rows[1].sentence)
    assert failure.get("type") == "slower"
    assert [suite.get(name) for name in ("tests", "failures", "skipped", "errors")] == ["2", "1", "1", "0"]
    for case, row in zip(cases, rows, strict=True):
        assert row.reason in (case.findtext("system-out") or "")


@pytest.mark.parametrize(
    ("failing", "failures", "skipped"), [(("undecided",), 1, 0), (("same", "faster"), 1, 1), ((), 0, 1)]
)
def test_the_verdicts_that_fail_are_chosen(
    report: Report, failing: tuple[str, ...], failures: int, skipped: int
) -> None:
    report = changed(report, sweep__rows__0__verdict="undecided", sweep__rows__1__verdict="faster")
    suite = ElementTree.fromstring(junit(report, failing))
    assert (len(suite.findall(".//failure")), len(suite.findall(".//skipped"))) == (failures, skipped)


def test_the_question_comes_first_and_once(report: Report) -> None:
    question = PrimaryRow(**vars(report.sweep.rows[1]) | {"primary": True, "axis": "scheduler"})
    report = changed(report, sweep__rows__1__primary=True, sweep__primary=question)
    suite = ElementTree.fromstring(junit(report))
    sides = "task against fork-join"
    assert [case.get("name") for case in suite] == [f"{sides}, the question: 2 threads", f"{sides}, 1 thread"]


def test_what_decides_the_exit_code_is_among_the_tests(report: Report) -> None:
    """A pooled ratio, or the comparison with the faster loops, may be the experiment's verdict."""
    pooled = Pooled(2, "fork-join", "task", 3, 21, 0.9, 0.8, 0.95, 0.01, "slower", "these 3 places only", 0.01,
                    sentence="task is slower.")  # fmt: skip
    report = changed(report, sweep__pooled=[pooled])
    name = "task against fork-join, all 3 places, 2 threads"
    case = ElementTree.fromstring(junit(report)).find(f"testcase[@name='{name}']")
    assert case is not None
    assert case.find("failure") is not None
    assert "all 3 places, 2 threads task against fork-join 0.900 [0.800, 0.950] slower" in " ".join(
        "".join(rendered(markdown(report)).itertext()).split()
    )


def test_junit_takes_what_xml_cannot_contain(report: Report) -> None:
    suite = ElementTree.fromstring(junit(changed(report, question=HOSTILE)))
    assert all("\N{REPLACEMENT CHARACTER}" in str(case.get("classname")) for case in suite)
    assert suite.get("failures") == "0"


@pytest.mark.parametrize(("name", "shown"), [
    ("a\u202eb\u2066c", "a?b?c"), ("a &lt; b &copy;", "a &lt; b &copy;"), ("a\x1b[31m\x00b\ufffe\udc80", "a?[31m?b??"),
    ("\u05d0\u200d\U0001f469", "\u05d0\u200d\U0001f469"),
])  # fmt: skip
def test_no_name_turns_or_breaks_what_is_around_it(report: Report, name: str, shown: str) -> None:
    named, shown = changed(report, question=name), shown.replace("?", "\N{REPLACEMENT CHARACTER}")
    assert rendered(markdown(named)).findtext("h2") == shown
    assert {case.get("classname") for case in ElementTree.fromstring(junit(named))} == {shown}
