"""Files of code: none has more than MOST lines, since a longer one wants to be two; and no two tests have one name. A
checkout is small."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MOST = 400
MOST_BYTES = 20_000_000  # of a checkout without its history
CODE = ("*.py", "*.js", "*.mjs", "*.css", "*.c", "*.sh", ":!server/ui/vendor")


def listed(*patterns: str) -> list[Path]:
    listing = ["git", "-c", "safe.directory=*", "ls-files", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run([*listing, "--", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    found = [Path(name) for name in done.stdout.split() if (ROOT / name).exists()]
    assert Path(__file__).relative_to(ROOT) in found
    return found


@pytest.fixture(scope="module")
def files() -> list[Path]:
    return listed(*CODE)


def test_no_file_of_code_is_too_long(files: list[Path]) -> None:
    lines = {str(path): len((ROOT / path).read_bytes().splitlines()) for path in files}
    assert [name for name, count in lines.items() if count > MOST] == []


def test_no_two_files_of_tests_have_one_name(files: list[Path]) -> None:
    """pytest imports them by it."""
    names = Counter(path.name for path in files if path.name.startswith("test_"))
    assert [name for name, count in names.items() if count > 1] == []


def test_a_checkout_is_small() -> None:
    assert sum((ROOT / path).lstat().st_size for path in listed()) < MOST_BYTES
