"""No file of code has more than MOST lines: a longer one wants to be two."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
MOST = 400
CODE = ("*.py", "*.js", "*.mjs", "*.css", "*.c", "*.sh", ":!server/ui/vendor")
EXEMPT = {"migrations/versions/0026_tables.py": "every table of a release in one step, which is never edited"}


def test_no_file_of_code_is_too_long() -> None:
    listing = ["git", "-c", "safe.directory=*", "ls-files", "--cached", "--others", "--exclude-standard", "--", *CODE]
    names = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert "tests/unit/test_file_sizes.py" in names
    lines = {name: len((ROOT / name).read_bytes().splitlines()) for name in names if (ROOT / name).exists()}
    assert {name for name, count in lines.items() if count > MOST} == EXEMPT.keys()
