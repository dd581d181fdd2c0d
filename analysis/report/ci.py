"""A report in the forms that CI systems show: Markdown for a comment or a job's summary, JUnit XML for a list of tests.

JUnit's form is that of the Apache Ant schema as CI systems read it: a test case for each comparison.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any
from unicodedata import category
from xml.etree import ElementTree

from gpt2core.spec.wording import counted, seconds
from taskloom.analysis.report.conclusion import Document
from taskloom.analysis.thresholds import EXCEEDED
from taskloom.analysis.wording import settings, value_name

FAILING = ("slower", "refused")
NONE = "-"
SPACE = "\t\n\r"
SPECIAL = str.maketrans(  # of GitHub's and GitLab's Markdown
    {**{sign: f"\\{sign}" for sign in "\\`*_{}[]<>#+!|~"}, **dict.fromkeys(SPACE, " ")}
)
LOST = "\N{REPLACEMENT CHARACTER}"


def markdown(document: Document) -> str:
    """The question, its answer, a table of comparisons and one of variants."""
    first, *rest = document["answer"]
    parts = [f"## {_plain(document['question'])}", f"**{_plain(first)}**", "\n".join(f"- {_plain(p)}" for p in rest)]
    compared = [
        [settings(row["at"]) or NONE, f"{_side(row, 'b')} against {_side(row, 'a')}", _interval(row), row["verdict"]]
        for row in _rows(document)
    ]
    if compared:
        parts += ["### Comparisons", _table("other settings", "compared", "ratio [95 %]", "verdict", rows=compared)]
        parts += ["Ratio: step time of the second / step time of the first named; above 1, the first named is faster."]
    variants = [
        [settings(row["variant"]) or NONE, seconds(row["step_s"]["median"]), str(row["runs"])]
        for row in document["scaling"]["rows"]
    ]
    if variants:
        parts += ["### Variants", _table("variant", "median step time", "runs", rows=variants)]
    experiment, known = document["experiment"], document["environment"]["known"]
    origin = [f"Experiment {experiment['experiment_id']}", experiment["state"], counted(experiment["runs"], "run")]
    origin += [f"{name} {known[name]}" for name in ("node", "core_version") if name in known]
    parts += [f"{_plain(', '.join(origin))}."]
    return "\n\n".join(part for part in parts if part) + "\n"


def junit(document: Document, failing: Collection[str] = FAILING) -> str:
    """A test case for each comparison: failed if its verdict is in `failing`, else skipped if it is undecided."""
    experiment = document["experiment"]
    suite = ElementTree.Element("testsuite", name=f"taskloom experiment {experiment['experiment_id']}")
    counts = dict.fromkeys(("tests", "failures", "skipped", "errors"), 0)
    for row in _rows(document):
        name = ", ".join(filter(None, (f"{_side(row, 'b')} against {_side(row, 'a')}", settings(row["at"]))))
        case = ElementTree.SubElement(
            suite, "testcase", name=printable(name), classname=printable(document["question"])
        )
        counts["tests"] += 1
        outcome = "failure" if row["verdict"] in failing else "skipped" if row["verdict"] == "undecided" else None
        if outcome is not None:
            counts["failures" if outcome == "failure" else "skipped"] += 1
            element = ElementTree.SubElement(case, outcome, message=printable(row["sentence"]))
            if outcome == "failure":
                element.set("type", row["verdict"])
        ElementTree.SubElement(case, "system-out").text = printable(f"{row['sentence']}\n{row['reason']}")
    for judged in document.get("thresholds", ()):
        name = printable(f"threshold of {settings(judged['settings'])}")
        case = ElementTree.SubElement(suite, "testcase", name=name, classname=printable(document["question"]))
        counts["tests"] += 1
        if judged["state"] in EXCEEDED:
            counts["failures"] += 1
            ElementTree.SubElement(case, "failure", message=printable(judged["sentence"]), type=judged["state"])
        elif judged["state"] == "undecided":
            counts["skipped"] += 1
            ElementTree.SubElement(case, "skipped", message=printable(judged["sentence"]))
        ElementTree.SubElement(case, "system-out").text = printable(judged["sentence"])
    for key, count in counts.items():
        suite.set(key, str(count))
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=False) + "\n"


def _rows(document: Document) -> Iterator[Mapping[str, Any]]:
    """The question first, then the other comparisons along the axis; each with its axis."""
    found = document["sweep"]
    if found["primary"] is not None:
        yield found["primary"]
    yield from ({**row, "axis": found["axis"]} for row in found["rows"] if not row["primary"])


def _side(row: Mapping[str, Any], side: str) -> str:
    return value_name(row["axis"], row[side])


def _interval(row: Mapping[str, Any]) -> str:
    if row["ratio"] is None:
        return NONE
    bounds = "" if row["ratio_low"] is None else f" [{row['ratio_low']:.3f}, {row['ratio_high']:.3f}]"
    return f"{row['ratio']:.3f}{bounds}"


def _table(*columns: str, rows: Sequence[Sequence[str]]) -> str:
    lines = [list(columns), ["--"] * len(columns), *([_plain(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _plain(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    return printable(text).translate(SPECIAL)


def printable(text: str) -> str:
    """Text without what XML cannot contain."""
    lost = ("Cc", "Cs", "Cn")  # control characters, halves of pairs, and what is no character
    return "".join(sign if sign in SPACE or category(sign) not in lost else LOST for sign in text)
