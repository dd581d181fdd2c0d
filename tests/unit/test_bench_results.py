"""Recordings of benchmarks: only those that a page, a decision or a test cites, each of at most 100 kB."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[2]
RESULTS = sorted((ROOT / "bench/results").iterdir())
CITING = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "bench").glob("*.py"),
          *(ROOT / "tests").rglob("*.py")]  # fmt: skip
MOST_BYTES = 100_000


def test_every_recording_is_cited_by_name_or_pattern() -> None:
    """A recording is cited by its text or its JSON; in Markdown a star may stand for several."""
    named = {m.rstrip(".").replace("\\", "") for path in CITING
             for m in re.findall(r"20\d\d-\d\d-\d\d-[\w.*\\-]+", path.read_text())}  # fmt: skip
    cited = {each.removesuffix(".md").removesuffix(".json") for each in named}
    patterns = [each for each in cited if "*" in each]
    left = [path.name for path in RESULTS
            if path.stem not in cited and not any(fnmatch(path.stem, f"{each}*") for each in patterns)]  # fmt: skip
    assert left == []


def test_a_cited_recording_is_kept_and_named_in_full() -> None:
    """Where a page cites `2026-11-25-x.md, -2.md`, nothing keeps the second one."""
    pages = [path.read_text() for path in CITING if path.suffix == ".md"]
    cited = {name for text in pages for name in re.findall(r"20\d\d-\d\d-\d\d-[\w-]+\.(?:md|json|patch)", text)}
    assert len(cited) > 100
    assert cited - {path.name for path in RESULTS} == set()
    assert [tail for text in pages for tail in re.findall(r"[\s(](-[\w*\\-]+\.md)\b", text)] == []


def test_a_recording_is_small() -> None:
    assert [(path.name, path.stat().st_size) for path in RESULTS if path.stat().st_size > MOST_BYTES] == []


def test_the_data_of_a_recording_are_one_line() -> None:
    assert [path.name for path in RESULTS if path.suffix == ".json" and path.read_bytes().count(b"\n") != 1] == []
