"""A plan of the largest graph that is accepted fits into half a gigabyte."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from gpt2core.process import launch

pytestmark = pytest.mark.slow

MOST_BYTES = 500_000_000
SETTINGS = {"model": "gpt2-124m", "batch": 64, "seq": 64, "batch_slice": 1, "token_slice": 8}  # 512 slices
MEASURED = """
import runpy, sys
sys.argv = ["gpt2core", "--plan"]
try:
    runpy.run_module("gpt2core", run_name="__main__")
finally:
    lines = open("/proc/self/status").read().splitlines()
    print(next(line.split()[1] for line in lines if line.startswith("VmHWM")), file=sys.stderr)
"""


def test_the_memory_of_a_plan_is_bounded():
    done = subprocess.run(
        [sys.executable, "-P", "-c", MEASURED], input=json.dumps(SETTINGS), capture_output=True,
        text=True, env=launch.environment(), check=True,
    )  # fmt: skip
    planned = json.loads(done.stdout.splitlines()[-1])
    assert planned["tasks"] > 64_000
    assert planned["edges"] > 1_000_000
    assert int(done.stderr.split()[-1]) * 1024 < MOST_BYTES
