"""Canonical keys: equal for equal values, and small."""

import subprocess
import sys

from taskloom.server.queue.experiments.canonical import key

MAKE_KEYS = """
from pathlib import Path
from taskloom.server.queue.experiments.canonical import key

def resident_bytes():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS"))

before = resident_bytes()
keys = [key({"number": i, "text": "x" * 1000}) for i in range(10_000)]
print(resident_bytes() - before, sum(map(len, keys)))
"""


def test_keys_are_equal_for_equal_values_and_tell_true_from_one():
    assert key({"a": 1, "b": [2.5, None]}) == key({"b": [2.5, None], "a": 1})
    assert len({key({"a": value}) for value in (1, True, 1.0, "1", None)}) == 5


def test_ten_thousand_keys_take_little_more_memory_than_their_text():
    done = subprocess.run([sys.executable, "-c", MAKE_KEYS], check=True, capture_output=True, text=True)
    grown, written = map(int, done.stdout.split())
    assert grown < 2 * written
