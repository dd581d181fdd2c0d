"""Fail if a test of any suite did not run or was skipped, so that success means that every test ran.

Arguments: pytest's expression for the marks of the tests that are expected ("": all), and the runs' JUnit reports.
"""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter


def collected(marks: str) -> Counter[str]:
    """Tests by file, as pytest finds them."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", marks]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return Counter(line.partition("::")[0] for line in found.splitlines() if line.startswith("tests/") and "::" in line)


def main(marks: str, *reports: str) -> int:
    ran: Counter[str] = Counter()
    skipped: list[str] = []
    for report in reports:
        for case in ElementTree.parse(report).getroot().iter("testcase"):
            name = case.get("classname") or ""
            if case.find("skipped") is not None:
                skipped.append(f"{name}::{case.get('name')}")
            else:
                ran[name.replace(".", "/") + ".py"] += 1
    expected = collected(marks)
    suites: Counter[str] = Counter()
    for path, count in ran.items():
        suites[path.split("/")[1]] += count
    print("tests run:", ", ".join(f"{suite} {count}" for suite, count in sorted(suites.items())))
    for name in skipped:
        print("skipped:", name)
    wrong = [path for path in sorted(expected | ran) if expected[path] != ran[path]]
    for path in wrong:
        print(f"{path}: {expected[path]} tests, of which {ran[path]} ran")
    return 1 if skipped or wrong or not expected else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
