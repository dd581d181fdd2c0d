"""Fail if a suite ran no test, or if any test was skipped: a green run must mean that everything ran."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path


def main(reports: list[str]) -> int:
    ran: Counter[str] = Counter()
    skipped: list[str] = []
    for report in reports:
        for case in ElementTree.parse(report).getroot().iter("testcase"):
            name = f"{case.get('classname')}::{case.get('name')}"
            suite = (case.get("classname") or "").split(".")[1]
            if case.find("skipped") is not None:
                skipped.append(name)
            else:
                ran[suite] += 1
    suites = {path.parent.name for path in Path("tests").glob("*/test_*.py")}
    print("tests run:", ", ".join(f"{suite} {ran[suite]}" for suite in sorted(suites)))
    for name in skipped:
        print("skipped:", name)
    for suite in sorted(suites - ran.keys()):
        print("ran no test of", suite)
    return 1 if skipped or suites - ran.keys() else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
