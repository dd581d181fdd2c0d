"""The canary's work never changes. All threads of a run execute it before and after the steps."""

from __future__ import annotations

import json
import platform
import re

import numba
import pytest

from gpt2core.run import canary, train
from gpt2core.run.canary import Canary
from gpt2core.spec.config import TrainConfig
from taskloom.analysis.processes import Process
from taskloom.contract.results import TrainResult

ALL_FROZEN = {
    "x86_64": "21a694e29c80f30a8f080695ca3fc6331bcbdcf48c7461735accc75e9b1a5881",
    "aarch64": "d0f3eb3285e8fcef3b89e53da5cd4785570e054bed016c6d74b2d857d0e85615",
}
FROZEN = ALL_FROZEN[platform.machine()]


@pytest.mark.parametrize("machine", canary.CODES)
def test_the_work_is_frozen(machine):
    """Another hash of the work restarts the history of every configuration, so change it only if necessary."""
    assert canary.identity(canary.CODES[machine]) == ALL_FROZEN[machine]
    assert canary.IDENTITY == FROZEN


def test_what_runs_is_what_is_written():
    """The compiler must keep the instructions and their order."""
    compiled = numba.njit("void(int64, int64)")(lambda address, lines: canary.one_pass(address, lines))
    (text,) = compiled.inspect_asm().values()
    (ran,) = re.findall(r"(?:#|//) ?APP\n(.*?)(?:#|//) ?NO_APP", text, re.DOTALL)
    assert names(ran) == names(canary.CODE)


def names(code: str) -> list[str]:
    """The instructions' names, without their operands' sizes."""
    lines = [line.split() for line in code.replace("jnz", "jne").splitlines() if not line.rstrip().endswith(":")]
    return [words[0].rstrip("lq") for words in lines if words]


def test_every_thread_takes_part():
    both = Canary([0, 1])
    both.time()
    both.time()
    assert len(both.times_s) == 2 * canary.REPETITIONS
    assert all(0 < each < 10 for each in both.times_s)


def test_a_result_carries_it():
    result = train.train(TrainConfig(batch=1, seq=16, steps=3, threads=2)).to_dict()
    found = result["canary"]
    assert (found["sha256"], found["unavailable"]) == (FROZEN, None)
    assert len(found["times_s"]) == 2 * canary.REPETITIONS
    taken = TrainResult.model_validate_json(json.dumps(result)).canary
    assert taken is not None
    assert taken.times_s == found["times_s"]
    process = Process(1, result)
    assert min(found["times_s"]) <= process.canary_s <= max(found["times_s"])
    assert process.canary_sha256 == FROZEN


def test_a_processor_without_one_says_so(monkeypatch):
    monkeypatch.setattr(canary, "UNAVAILABLE", "no canary exists for riscv64")
    result = train.train(TrainConfig(batch=1, seq=16, steps=3)).to_dict()
    assert (result["canary"]["times_s"], result["canary"]["unavailable"]) == ([], "no canary exists for riscv64")
    process = Process(1, result)
    assert (process.canary_s, process.canary_sha256) == (None, None)
