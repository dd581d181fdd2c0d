"""A plan of the largest accepted graph fits into half a gigabyte, and this is checked before planning."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from gpt2core.node import host
from gpt2core.process import launch
from gpt2core.run import prepare
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import NotEnoughMemory
from gpt2core.spec.fields import SYNCS
from gpt2core.step import graph

pytestmark = pytest.mark.slow

MOST_BYTES = 500_000_000
LARGEST = 64  # batch: with 512 slices, the most that is accepted
SETTINGS = {"model": "gpt2-124m", "seq": 64, "batch_slice": 1, "token_slice": 8}
MEASURED = """
import sys
from gpt2core import __main__
from gpt2core.step import graph
def peak():
    lines = open("/proc/self/status").read().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("VmHWM")))
build = graph.build
def noting(program, sync):
    print(peak(), graph.planning_bytes(program), file=sys.stderr)
    return build(program, sync)
graph.build = noting
sys.argv = ["gpt2core", "--plan"]
try:
    __main__.main()
finally:
    print(peak(), file=sys.stderr)
"""


def planned(sync, batch):
    """The plan; resident bytes before planning; predicted bytes; peak of resident bytes."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", MEASURED], input=json.dumps({**SETTINGS, "sync": sync, "batch": batch}),
        capture_output=True, text=True, env={**launch.environment(), "TASKLOOM_PROVE": "always"}, check=True,
    )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1]), *map(int, done.stderr.split())


def test_the_memory_of_the_largest_plan_is_bounded_and_known_before():
    plan, before, foretold, peak = planned("none", LARGEST)  # the sync that needs most memory
    assert plan["tasks"] > 64_000
    assert plan["edges"] > 1_000_000
    assert peak < MOST_BYTES
    assert peak - before <= foretold <= 2 * (peak - before)


@pytest.mark.parametrize("sync", [sync for sync in SYNCS if sync != "none"])  # which is above
def test_a_plan_takes_no_more_memory_than_foretold(sync):
    plan, before, foretold, peak = planned(sync, LARGEST // 4)
    assert plan["tasks"] > 16_000
    assert peak - before <= foretold


def test_a_plan_that_would_not_fit_is_refused_before_it_is_made(monkeypatch):
    config = TrainConfig(seq=16, batch=2)
    planned = prepare.plan(config)
    needed = graph.planning_bytes(planned.program) + sum(planned.memory_bytes.values())
    monkeypatch.setattr(host, "available_memory_bytes", lambda: needed + 1000)
    assert prepare.plan(config, 1000, prove=True)
    monkeypatch.setattr(graph, "build", lambda *_: pytest.fail("it was made"))
    with pytest.raises(NotEnoughMemory, match=r"tasks; larger slices or a smaller batch"):
        prepare.plan(config, 1001, prove=True)
    assert prepare.plan(config, 1001)  # the graph is kept, so nothing is made
