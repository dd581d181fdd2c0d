"""What two types describe has the same fields in both, so that neither drops what the other knows."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from taskloom.analysis import reasons, verdict
from taskloom.contract.analysis import VerdictReason
from taskloom.contract.experiments import Verdict
from taskloom.server.read.analysis import answers


@pytest.mark.parametrize(
    ("computed", "answered"),
    [
        (verdict.Headline, Verdict),
        (reasons.Reason, VerdictReason),
    ],
)
def test_an_answer_has_the_fields_of_what_is_computed(computed, answered):
    assert {item.name for item in dataclasses.fields(computed)} == set(answered.model_fields)


def test_cached_answers_depend_on_all_of_our_code_that_computes_them():
    """A changed module must change the answers' ETags."""
    loaded = (
        "import sys, taskloom.server.read.questions\n"
        "for module in list(sys.modules.values()):\n"
        "    if module.__name__.split('.')[0] in ('gpt2core', 'taskloom') and getattr(module, '__file__', None):\n"
        "        print(module.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    packages = tuple(package.__name__ for package in answers.PACKAGES)
    other = [name for name in done.stdout.split() if not name.startswith(packages)]
    assert other == ["taskloom", "taskloom.migrations"]  # which compute nothing


@pytest.mark.parametrize("change", ["content", "name", "new"])
def test_the_hash_of_the_code_changes_with_every_module(tmp_path: Path, change: str):
    folder = tmp_path / "package"
    (folder / "deep").mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "deep" / "a.py").write_text("x = 1\n")
    before = answers.hash_of([folder])
    assert before == answers.hash_of([folder])
    if change == "content":
        (folder / "deep" / "a.py").write_text("x = 2\n")
    elif change == "name":
        (folder / "deep" / "a.py").rename(folder / "deep" / "b.py")
    else:
        (folder / "deep" / "b.py").touch()
    assert answers.hash_of([folder]) != before
