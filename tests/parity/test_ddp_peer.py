"""PyTorch's DistributedDataParallel of bench.ranks trains as one process does."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from bench.step import LOSS_TOLERANCE, run_ours
from bench.torch_ddp import run_ddp
from bench.torch_gpt2 import random_model, write_llmc_checkpoint
from gpt2core.process import launch
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.models import ModelConfig

pytestmark = pytest.mark.parity


def test_two_ranks_have_the_losses_of_one_process(tmp_path: Path) -> None:
    model = ModelConfig(layers=2, heads=4, channels=48, vocab=260, context=32)
    write_llmc_checkpoint(tmp_path / "initial.bin", random_model(model, seed=1))
    core = launch.allowed_cores()[0]
    config = TrainConfig(model, batch=4, seq=16, steps=5, warmup=1, data="stdlib", lr=3e-3, threads=1, cores=(core,),
                         checkpoint=str(tmp_path / "initial.bin"))  # fmt: skip
    ours = run_ours(config, "task", tmp_path)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    found = run_ddp(config, 1, [((), (core,))] * 2, "127.0.0.1", "lo", port)
    assert found["losses"] == pytest.approx(ours["losses"], rel=LOSS_TOLERANCE["fp32"])
    assert ours["losses"][-1] < ours["losses"][0]
    assert len(found["step_s"]) == config.steps
