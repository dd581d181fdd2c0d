"""Validity evidence of real runs, with and without a real disturbance."""

from __future__ import annotations

import dataclasses
import gzip
import json
import subprocess
import sys

import pytest

from gpt2core.measure.evidence import SHARE
from gpt2core.node import host
from gpt2core.run import train
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.models import model_from
from taskloom.analysis.trace import trace_of

SMALL = TrainConfig(
    model=model_from("tiny"), batch=4, seq=32, steps=12, warmup=2, token_slice=16, data="synthetic", threads=2
)
BUSY = "import os; os.sched_setaffinity(0, {0})\nprint(flush=True)\nwhile True: pass"


@pytest.mark.parametrize(("scheduler", "sync"), [("serial", "step"), ("fork-join", "step"), ("task", "none")])
def test_every_timed_step_has_evidence_or_a_reason(scheduler, sync):
    threads = 1 if scheduler == "serial" else 2
    result = train.train(dataclasses.replace(SMALL, scheduler=scheduler, sync=sync, threads=threads))
    for name, values in result.validity["steps"].items():
        if values is None:
            assert result.validity["unavailable"][name]
            continue
        assert values[:2] == [None, None]
        assert len(values) == SMALL.steps
        assert all(isinstance(value, int | float) and value >= 0 for value in values[2:]), name
    assert (result.validity["steps"]["frequency_hz"] is None) == (host.frequency_hz([0]) is None)
    assert len(result.flagged) == SMALL.steps
    assert result.flagged[:2] == [[], []]
    assert result.summary["flagged_steps"] == sum(map(bool, result.flagged))
    assert len(result.counters["threads"]) == threads
    for counted in result.counters["threads"]:
        for name, value in counted.items():
            assert (value is None) == (name in result.counters["unavailable"])


@pytest.mark.alone
def test_another_process_on_the_runs_cores_is_named():
    """A busy process shares the first core. The evidence shows that the team's thread waits and that others use it.

    The run is long enough on any processor, because a load below 50 ms in all is not reported.
    """
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE) as busy:
        try:
            assert busy.stdout
            busy.stdout.readline()
            result = train.train(dataclasses.replace(SMALL, steps=602, scheduler="fork-join"))
        finally:
            busy.kill()
    assert max(v for v in result.validity["steps"]["run_delay_s"] if v is not None) > 0.001
    assert result.summary["flagged_steps"] > 10
    assert any(each.startswith(f"{result.summary['flagged_steps']} of 600 timed steps") for each in result.warnings)
    assert any(warning.startswith("foreign load: ") for warning in result.warnings)
    assert result.validity["foreign"]["foreign_s"] > 0.1 * sum(result.step_s[2:])


@pytest.mark.alone
@pytest.mark.parametrize("scheduler", ["fork-join", "task"])
def test_a_preempted_task_is_not_all_useful_work_in_a_trace(tmp_path, scheduler):
    """A busy process shares the first core, so that a thread loses it within tasks."""
    config = dataclasses.replace(SMALL, steps=602, scheduler=scheduler, trace=str(tmp_path / "trace.json.gz"))
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE) as busy:
        try:
            assert busy.stdout
            busy.stdout.readline()
            result = train.train(config)
        finally:
            busy.kill()
    found = trace_of(json.loads(gzip.decompress((tmp_path / "trace.json.gz").read_bytes())))
    assert found.flagged == result.flagged[2:]
    delays = result.validity["steps"]["run_delay_s"][2:]
    preempted = 0
    for spans in found.threads:
        assert all(0 <= span.run_delay_ns <= span.end_ns - span.begin_ns for span in spans)
        assert all(span.run_delay_ns == 0 for span in spans if span.what < 0)
        for at, span in enumerate(spans):
            if span.run_delay_ns < 500_000:
                continue
            # Its thread reads Linux's counts before its first task in a later step: the delay is of the steps so far.
            read_ns = next((later.begin_ns for later in spans[at + 1 :] if later.step > span.step), None)
            if read_ns is not None:  # else after the last step
                preempted += 1
                disturbed = [
                    delay for delay, step in zip(delays, found.steps(), strict=True)
                    if step.begin_ns < read_ns and span.begin_ns < step.end_ns
                ]  # fmt: skip
                assert sum(disturbed) >= 0.99e-9 * span.run_delay_ns
    assert preempted
    reasons = [found.reasons(i) for i in range(len(delays))]
    assert all(
        ("run_delay" in why) == (delay > SHARE * seconds)
        for why, delay, seconds in zip(reasons, delays, result.step_s[2:], strict=True)
    )
    assert all(0 <= delay <= seconds * (1 + 1e-6) for delay, seconds in zip(delays, result.step_s[2:], strict=True))
