"""A GRU, written from docs/how-to/add-a-network.md: 120 lines give every scheduler, and torch.nn.GRU's losses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gpt2core.gemm import libraries as gemm
from gpt2core.gemm import table
from gpt2core.networks import program
from gpt2core.networks.memory import memory_bytes, plan
from gpt2core.networks.network import network_of
from gpt2core.run import prepare, train
from gpt2core.run.fill import fill
from gpt2core.spec.config import TrainConfig
from tests.support import poison
from tests.support.networks import cases

FOLDER = Path(__file__).parents[1]
MOST_LINES = 120  # without blank ones
MODEL = {"network": "gru", "hidden": 9, "vocab": 61, "context": 16}


def config(**settings: object) -> TrainConfig:
    """Ragged: slices that do not divide the batch, chunks that do not divide time."""
    shape = {"seq": 10, "batch_slice": 2, "token_slice": 4}
    return TrainConfig.from_dict({**cases.COMMON, **shape, "model": MODEL, **settings})


def test_every_scheduler_gives_the_same_bits() -> None:
    outcomes = {}
    for how in cases.HOW:
        result = train.train(config(**how, steps=3))
        outcomes[str(how)] = (tuple(result.losses), result.weights_sha256)
    assert len(set(outcomes.values())) == 1, outcomes


@pytest.mark.parametrize("slices", [(2, 4), (5, 10), (1, 1)])
def test_training_follows_pytorch(slices: tuple[int, int]) -> None:
    """Losses agree to a relative 1e-5 with those that tests/golden/make_golden.py stored."""
    result = train.train(config(scheduler="task", threads=2, batch_slice=slices[0], token_slice=slices[1]))
    golden = np.load(FOLDER / "golden" / "gru.npz")["losses"]
    np.testing.assert_allclose(result.losses, golden, rtol=1e-5)
    assert result.losses[-1] < result.losses[0]


def test_tasks_read_and_write_what_they_declare() -> None:
    how = config(steps=1)
    data = network_of(how).data(how)
    libraries = table.choose(gemm.load(how.blas, how.precision), [], lambda _: None)
    poison.check(program.build(how), plan(how), lambda memory: fill(memory, how, data), libraries)


def test_its_memory_is_known_without_a_trainer() -> None:
    planned = prepare.plan(config(scheduler="task"))
    assert planned.memory_bytes == memory_bytes(planned.config)


def test_it_is_short() -> None:
    lines = (FOLDER / "support/networks/gru.py").read_text(encoding="utf-8").splitlines()
    assert sum(bool(line.strip()) for line in lines) <= MOST_LINES
