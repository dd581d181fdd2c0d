"""Reasons are data, and one module puts them into words; nothing else reads or writes such words."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from taskloom.analysis.family import Family
from taskloom.analysis.reasons import Reason
from taskloom.analysis.sentences import disturbed, figures, of_sides, of_variants, reason

ROOT = Path(__file__).parents[2]
RESEMBLE = "neighbours resemble each other (autocorrelation 0.80)"


@pytest.mark.parametrize(
    ("why", "sentence"),
    [
        (reason("wide"), "More repetitions narrow the interval."),
        (
            reason("too-few", needed=6, unit="pairs"),
            "A verdict needs at least 6 pairs of runs on one occasion.",
        ),
        (
            reason("too-few", needed=7, unit="processes"),
            "A verdict needs at least 7 runs a side on one occasion.",
        ),
        (
            reason("too-few-on-an-occasion", needed=3, unit="pairs"),
            "A verdict needs at least 3 pairs of runs on every occasion.",
        ),
        (
            reason("too-few-at-a-place", needed=3, unit="pairs"),
            "A verdict needs at least 3 pairs of runs at every place.",
        ),
        (
            reason("too-few-in-family", needed=8, of=Family(6), unit="pairs"),
            "There are too few runs: one of 6 comparisons needs at least 8 pairs of runs.",
        ),
        (
            reason("too-few-in-family", needed=7, of=Family(0, 2), unit="places"),
            "There are too few runs: one of 2 pooled ratios needs at least 7 places.",
        ),
        (
            reason("adjusted", of=Family(6, 1)),
            "The ratio is not significant as one of 6 comparisons and 1 pooled ratio; more repetitions narrow the "
            "interval.",
        ),
        (
            reason("not-interleaved", needed=6, unit="occasions"),
            "A verdict needs runs in interleaved blocks, or 6 occasions a side.",
        ),
        (
            reason("dependent", findings=[RESEMBLE]),
            f"The interval does not hold, because the values show {RESEMBLE}.",
        ),
    ],
)
def test_an_undecided_comparison_says_what_it_lacks(why, sentence):
    assert why.sentence == sentence
    text = of_sides("undecided", "scheduler", "fork-join", "task", figures(1.1, None, None), why)
    assert text == f"It is undecided whether task or fork-join is faster: fork-join time / task time 1.100. {sentence}"


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        (
            {"scheduler": "fork-join", "threads": 2}, {"scheduler": "task", "threads": 2},
            "task is 1.100 times as fast as fork-join on 2 threads.",
        ),
        ({"threads": 1}, {"threads": 2}, "2 threads are 1.100 times as fast as 1 thread."),
        (
            {"scheduler": "fork-join", "threads": 1, "batch": 4}, {"scheduler": "task", "threads": 2, "batch": 4},
            "task, 2 threads is 1.100 times as fast as fork-join, 1 thread with batch 4.",
        ),
        ({"threads": 2}, {"threads": 2}, "B is 1.100 times as fast as A."),
        ({"threads": 2}, {"scheduler": "task"}, "B is 1.100 times as fast as A."),
        ({}, {}, "B is 1.100 times as fast as A."),
    ],
)  # fmt: skip
def test_a_comparison_of_runs_names_the_settings_in_which_they_differ(a, b, said):
    assert of_variants("faster", a, b, "1.100", Reason("significant")) == said


def test_sentences_of_decided_comparisons_need_no_reason():
    why, ratio = reason("significant"), figures(1.25, 1.2, 1.3)
    assert ratio == "1.250 [1.200, 1.300]"
    assert of_sides("faster", "threads", 1, 2, ratio, why) == (
        "2 threads are 1.250 [1.200, 1.300] times as fast as 1 thread."
    )
    where = " with slices 1x64"
    assert of_sides("slower", "scheduler", "fork-join", "task", ratio, why, where=where) == (
        "task is slower: 1.250 [1.200, 1.300] times as fast as fork-join with slices 1x64."
    )
    refused = reason("refused", findings=["their losses disagree"])
    assert of_sides("refused", "scheduler", "fork-join", "task", figures(None, None, None), refused) == (
        "The comparison of task with fork-join is refused: their losses disagree."
    )


def test_the_share_of_disturbed_runs_comes_first_if_most_are():
    assert disturbed("A is faster.", 0, 8) == "A is faster."
    assert disturbed("A is faster.", 1, 8) == "A is faster. 1 of 8 runs was disturbed."
    assert disturbed("A is faster.", 5, 8) == "Most runs were disturbed (5 of 8). A is faster."


READ_TEXT = {"startswith", "endswith", "partition", "rpartition", "removeprefix", "removesuffix", "split", "replace"}
# Text that is no sentence: nouns, names of settings and of ops, an instant, what a user gave.
NO_SENTENCE = {
    "analysis/wording.py": {"endswith", "replace"},
    "analysis/report/colours.py": {"startswith"},
    "analysis/report/plots.py": {"replace"},
    "analysis/report/page.py": {"replace"},
    "analysis/report/document.py": {"endswith"},
    "analysis/naming.py": {"removeprefix", "replace"},
    "taskloom/commands/analysis.py": {"partition"},
    "taskloom/tables.py": {"replace"},
    "analysis/messages.py": {"replace"},  # the name of an op
    "analysis/rank_work.py": {"endswith", "partition", "removesuffix", "split"},  # likewise
}
PYTHON = [*sorted((ROOT / "analysis").rglob("*.py")), *(ROOT / "taskloom" / name for name in (
    "analysis_tables.py", "tables.py", "watch.py", "commands/compare.py", "commands/analysis.py",
    "commands/report.py",
))]  # fmt: skip


def _reads(path: Path) -> set[str]:
    """Ways in which a module takes text apart."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import) and any(name.name == "re" for name in node.names):
            found.add("re")
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in READ_TEXT:
            of_module = isinstance(node.func.value, ast.Name) and node.func.value.id == "dataclasses"
            found |= set() if of_module else {node.func.attr}
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
            text = node.left.value if isinstance(node.left, ast.Constant) else None
            found |= {f"{text!r} in"} if isinstance(text, str) and " " in text else set()
    return found - NO_SENTENCE.get(str(path.relative_to(ROOT)), set())


@pytest.mark.parametrize("path", PYTHON, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_module_takes_sentences_apart(path):
    assert _reads(path) == set()


@pytest.mark.parametrize(
    "name", ["experiment/answer.js", "pages/compare.js", "pages/experiment.js", "pages/now.js", "plots/variants.js",
             "plots/rows.js", "words.js"],
)  # fmt: skip
def test_no_page_takes_sentences_apart(name):
    text = (ROOT / "server/ui" / name).read_text()
    names_only = text.replace("part.replace('_', '-')", "")
    assert not re.search(r"\.(replace|match|startsWith|endsWith|search)\(|undecided whether|times as fast", names_only)
