"""A report in the forms that CI systems show: Markdown for a comment or a job's summary, JUnit XML for a list of tests.

JUnit's form is that of the Apache Ant schema as CI systems read it: a test case for each comparison.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from unicodedata import bidirectional, category
from xml.etree import ElementTree

from gpt2core.spec.wording import counted, seconds
from taskloom.analysis.report.conclusion import Statement, statements
from taskloom.analysis.report.content import Report
from taskloom.analysis.thresholds import EXCEEDED, Judged
from taskloom.analysis.wording import settings

FAILING = ("slower", "refused")
NONE = "-"
SPACE = "\t\n\r"
SPECIAL = str.maketrans(  # of GitHub's and GitLab's Markdown
    {**{sign: f"\\{sign}" for sign in "\\`*_{}[]<>#+!|~&"}, **dict.fromkeys(SPACE, " ")}
)
LOST = "\N{REPLACEMENT CHARACTER}"
TURNING = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")  # the direction of the text around them


def markdown(report: Report) -> str:
    """The question, its answer, a table of comparisons and one of variants."""
    first, *rest = report.answer
    parts = [f"## {_plain(report.question)}", f"**{_plain(first)}**", "\n".join(f"- {_plain(p)}" for p in rest)]
    compared = [[where, compared, _interval(row), row.verdict] for where, compared, row in statements(report.sweep)]
    if compared:
        parts += ["### Comparisons", _table("other settings", "compared", "ratio [95 %]", "verdict", rows=compared)]
        parts += ["Ratio: step time of the second / step time of the first named; above 1, the first named is faster."]
    variants = [
        [settings(row.variant) or NONE, seconds(row.step_s.median), str(row.runs)]
        for row in report.scaling.rows
    ]
    if variants:
        parts += ["### Variants", _table("variant", "median step time", "runs", rows=variants)]
    experiment, known = report.experiment, report.environment.known
    origin = [f"Experiment {experiment.experiment_id}", experiment.state, counted(experiment.runs, "run")]
    origin += [f"{name} {known[name]}" for name in ("node", "core_version") if name in known]
    parts += [f"{_plain(', '.join(origin))}."]
    return "\n\n".join(part for part in parts if part) + "\n"


def junit(report: Report, failing: Collection[str] = FAILING, thresholds: Sequence[Judged] = ()) -> str:
    """A test case for each statement: failed if its verdict is in `failing`, else skipped if it is undecided.
    thresholds: what was judged by them, a test case each."""
    suite = ElementTree.Element("testsuite", name=f"taskloom experiment {report.experiment.experiment_id}")
    for where, compared, row in statements(report.sweep):
        case = _case(suite, report.question, f"{compared}, {where}", row.verdict, row.verdict in failing, row.sentence)
        found = f"{row.sentence}\n{getattr(row, 'reason', None) or row.why.sentence}"
        ElementTree.SubElement(case, "system-out").text = printable(found)
    for judged in thresholds:
        name = f"threshold of {settings(judged.settings)}"
        case = _case(suite, report.question, name, judged.state, judged.state in EXCEEDED, judged.sentence)
        ElementTree.SubElement(case, "system-out").text = printable(judged.sentence)
    failures, skipped = (len(suite.findall(f"testcase/{outcome}")) for outcome in ("failure", "skipped"))
    for key, count in (("tests", len(suite)), ("failures", failures), ("skipped", skipped), ("errors", 0)):
        suite.set(key, str(count))
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=False) + "\n"


def _case(
    suite: ElementTree.Element, question: str, name: str, verdict: str, fails: bool, sentence: str
) -> ElementTree.Element:
    case = ElementTree.SubElement(suite, "testcase", name=printable(name), classname=printable(question))
    if fails:
        ElementTree.SubElement(case, "failure", message=printable(sentence), type=verdict)
    elif verdict == "undecided":
        ElementTree.SubElement(case, "skipped", message=printable(sentence))
    return case


def _interval(row: Statement) -> str:
    if row.ratio is None:
        return NONE
    bounds = "" if row.ratio_low is None else f" [{row.ratio_low:.3f}, {row.ratio_high:.3f}]"
    return f"{row.ratio:.3f}{bounds}"


def _table(*columns: str, rows: Sequence[Sequence[str]]) -> str:
    lines = [list(columns), ["--"] * len(columns), *([_plain(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _plain(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    return printable(text).translate(SPECIAL)


def printable(text: str) -> str:
    """Text without what XML cannot contain, and without marks that would turn the text around it."""
    lost = ("Cc", "Cs", "Cn")  # control characters, halves of pairs, and what is no character
    return "".join(
        LOST if sign not in SPACE and (category(sign) in lost or bidirectional(sign) in TURNING) else sign
        for sign in text
    )
