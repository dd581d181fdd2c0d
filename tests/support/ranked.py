"""Small runs of several ranks, by what these divide, and the MPI library that connects them."""

from __future__ import annotations

import dataclasses

from gpt2core.networks.vgg.tensors import Vgg
from gpt2core.process.ranks import GUARD, launcher
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.models import ModelConfig

SMALL = TrainConfig(
    model=ModelConfig(layers=2, heads=2, channels=32, vocab=61, context=16), fusion="rows", batch=6, seq=10, steps=4,
    warmup=1, lr=1e-2, batch_slice=1, token_slice=4, data="synthetic", scheduler="serial", allow_oversubscription=True,
)  # fmt: skip
DIVISIBLE = ModelConfig(layers=2, heads=4, channels=32, vocab=200, context=16)
TENSOR = dataclasses.replace(SMALL, model=DIVISIBLE, parallel="tensor")
HYBRID = TrainConfig(
    model=Vgg(width=2, hidden=24, classes=7), batch=6, batch_slice=1, steps=4, warmup=1, lr=0.02, parallel="hybrid",
    scheduler="serial", allow_oversubscription=True,
)  # fmt: skip
WITHIN_S = 60.0
OPEN_MPI = launcher(2)[: len(GUARD)] == [*GUARD]  # else MPICH (`make test-openmpi`)
KILLED = "signal 9 (Killed)" if OPEN_MPI else "Killed (signal 9)"
RANK = ("PMI_RANK", "OMPI_COMM_WORLD_RANK")  # variables with a rank's number, of MPICH and of Open MPI
COMPILES_S = 800  # with nothing compiled, beside other work; it took 230 s
