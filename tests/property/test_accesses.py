"""Every task of GPT-2's step reads and writes what its op declares, and nothing else."""

from __future__ import annotations

import dataclasses

import pytest

from gpt2core.gemm import libraries as gemm
from gpt2core.gemm import table
from gpt2core.networks import program
from gpt2core.networks.memory import plan
from gpt2core.networks.network import network_of
from gpt2core.run.fill import fill
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.fields import FUSIONS
from gpt2core.spec.models import ModelConfig
from gpt2core.step import slicing
from tests.support import poison
from tests.support.processors import WITH_MKL

SMALL = TrainConfig(
    model=ModelConfig(layers=2, heads=2, channels=32, vocab=61, context=16),
    batch=3, seq=10, steps=1, batch_slice=2, token_slice=4, data="synthetic",
)  # fmt: skip


@pytest.mark.parametrize(
    ("fusion", "change"),
    [
        *((fusion, {}) for fusion in FUSIONS),
        ("rows", {"grad_accum": 2, "grad_clip": 0.5, "stop_at": {"loss": 9.0}}),
        ("all", {"optimizer": "sgd", "momentum": 0.9, "lr_schedule": "cosine"}),
    ],
)
@pytest.mark.parametrize(
    ("blas", "precision"),
    [
        ("own", "fp32"),
        ("own", "bf16"),
        pytest.param("mkl", "bf16", marks=[pytest.mark.slow, WITH_MKL]),
        pytest.param("mkl", "fp32", marks=[pytest.mark.slow, WITH_MKL]),
        pytest.param("openblas", "fp32", marks=pytest.mark.slow),
    ],
)
def test_tasks_read_and_write_what_they_declare(blas, precision, fusion, change):
    config = slicing.resolve(dataclasses.replace(SMALL, blas=blas, precision=precision, fusion=fusion, **change))
    network = network_of(config)
    libraries = table.choose(gemm.load(config.blas, config.precision), [], lambda _: None)
    poison.check(
        program.build(config), plan(config), lambda held: fill(held, config, network.data(config)), libraries
    )


def test_rows_of_bfloat16_that_are_no_whole_pairs():
    """With odd channels no product reads the next row, which another task may be writing."""
    model = ModelConfig(layers=2, heads=3, channels=9, vocab=61, context=16)
    config = slicing.resolve(dataclasses.replace(SMALL, model=model, blas="own", precision="bf16"))
    network = network_of(config)
    libraries = table.choose(gemm.load(config.blas, config.precision), [], lambda _: None)
    poison.check(
        program.build(config), plan(config), lambda held: fill(held, config, network.data(config)), libraries
    )
