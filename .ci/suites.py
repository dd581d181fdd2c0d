"""Fail if a test of any suite did not run or was skipped, so that success means that every test ran.

A test may be skipped where the processor lacks instructions: no set-up of the machine could run it. Its reason begins
with LACKS.

Arguments: pytest's expression for the marks of the tests that are expected ("": all), and the runs' JUnit reports.
Reports after --again are of tests that ran once more, with other settings: they replace no run of these tests.
"""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter

AGAIN = "--again"
LACKS = "this processor lacks"


def collected(marks: str) -> Counter[str]:
    """Tests by file, as pytest finds them."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", marks]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return Counter(line.partition("::")[0] for line in found.splitlines() if line.startswith("tests/") and "::" in line)


def main(marks: str, *arguments: str) -> int:
    reports, again = arguments, set[str]()
    if AGAIN in arguments:
        at = arguments.index(AGAIN)
        reports, again = (*arguments[:at], *arguments[at + 1 :]), set(arguments[at + 1 :])
    ran: Counter[str] = Counter()
    lacking: Counter[str] = Counter()
    skipped: list[str] = []
    nothing = False  # a repetition ran no test
    for report in reports:
        repeated = 0
        for case in ElementTree.parse(report).getroot().iter("testcase"):
            name, skip = case.get("classname") or "", case.find("skipped")
            path = name.replace(".", "/") + ".py"
            if skip is None:
                repeated += report in again
                ran[path] += report not in again
            elif (skip.get("message") or "").startswith(LACKS):
                lacking[path] += report not in again
                print(f"{skip.get('message')}: {name}::{case.get('name')}")
            else:
                skipped.append(f"{name}::{case.get('name')}")
        if report in again:
            print(f"tests run again: {repeated} ({report})")
            nothing |= not repeated
    expected = collected(marks)
    suites: Counter[str] = Counter()
    for path, count in ran.items():
        suites[path.split("/")[1]] += count
    print("tests run:", ", ".join(f"{suite} {count}" for suite, count in sorted(suites.items())))
    for name in skipped:
        print("skipped:", name)
    done = ran + lacking
    wrong = [path for path in sorted(expected | done) if expected[path] != done[path]]
    for path in wrong:
        print(f"{path}: {expected[path]} tests, of which {done[path]} ran")
    return 1 if skipped or wrong or nothing or not expected else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
