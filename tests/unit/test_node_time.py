"""The parts of a node's time add up to all of it."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time

import pytest

from gpt2core.process.node_time import NodeTime
from gpt2core.run import train
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.result import NODE_TIME
from taskloom.analysis.node_time import sentence, timed_share

SMALL = TrainConfig(batch=1, seq=16, steps=3, warmup=1, threads=1, scheduler="serial", data="synthetic")


def test_parts_follow_each_other() -> None:
    spent = NodeTime(10.0)
    spent.went_to("claiming", 12.0)
    spent.went_to("starting", 12.5)
    spent.went_to("claiming", 13.0)
    assert spent.to_dict() == {"claiming_s": 2.5, "starting_s": 0.5}
    with pytest.raises(KeyError):
        spent.went_to("lunch")


def test_what_a_process_does_not_tell_is_its_end() -> None:
    spent = NodeTime(10.0)
    spent.went_to("starting", 11.0)
    spent.went_to_parts({"starting_s": 0.5, "planning_s": 1.0, "timed_s": 2.0, "finishing_s": 0.25}, 15.0)
    assert spent.parts == {"starting": 1.5, "planning": 1.0, "timed": 2.0, "finishing": 0.5}
    assert math.fsum(spent.parts.values()) == pytest.approx(15.0 - 10.0)


def test_a_runs_parts_are_all_of_its_time() -> None:
    begun = time.monotonic()
    spent = NodeTime(begun)
    result = train.train(SMALL, spent=spent).to_dict()
    assert begun < spent.until_s <= time.monotonic()
    assert math.fsum(result["node_time"].values()) == pytest.approx(spent.until_s - begun)
    parts = NODE_TIME[NODE_TIME.index("planning") :]
    assert list(result["node_time"]) == [f"{part}_s" for part in parts]
    assert result["node_time"]["timed_s"] >= 0.99 * math.fsum(result["step_s"][1:])  # two clocks


def test_a_process_knows_when_it_started() -> None:
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    code = "from gpt2core.process.node_time import process_started_s; print(process_started_s())"
    before = time.monotonic()
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert before - 2 * tick_s < float(done.stdout) < time.monotonic()


def test_a_sentence_names_the_largest_parts() -> None:
    parts = {"claiming_s": 3.0, "starting_s": 1.0, "timed_s": 6.0}
    assert timed_share(parts) == 0.6
    text = "Node time 10.0 s, of which timed steps 60% (waiting for a claim 30%, starting 10%)."
    assert sentence(parts) == text
    assert sentence(parts, "one is lost") == f"{text} Incomplete: one is lost."
    assert sentence({"timed_s": 2.0}) == "Node time 2.0 s, of which timed steps 100%."
    assert sentence(None, "there is no result") == "Node time is not known: there is no result."
    assert (timed_share({}), sentence(None)) == (None, "")
