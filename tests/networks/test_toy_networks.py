"""Step programs can express a recurrence and convolutions. All schedulers train them to the same bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gpt2core.gemm import libraries as gemm
from gpt2core.gemm import table
from gpt2core.networks import program
from gpt2core.networks.memory import plan
from gpt2core.networks.network import network_of
from gpt2core.run import prepare, train
from gpt2core.run.fill import fill
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import ConfigError
from gpt2core.step.memory import Memory
from taskloom.contract.runs import RunSpec
from taskloom.server.queue.experiments.memory import run_memory_bytes
from tests.support import poison
from tests.support.networks import cases

FOLDER = Path(__file__).parents[1]
MOST_LINES = 60  # lines of a toy network, without blank ones; the step program must keep them few
TOYS = pytest.mark.parametrize("network", cases.SHAPES)


@TOYS
def test_every_scheduler_gives_the_same_bits(network: str) -> None:
    outcomes = {}
    for how in cases.HOW:
        result = train.train(cases.config(network, **how))
        outcomes[str(how)] = (tuple(result.losses), result.weights_sha256)
    assert len(set(outcomes.values())) == 1, outcomes


@TOYS
@pytest.mark.parametrize("threads", [1, 3])
def test_training_follows_pytorch(network: str, threads: int, tmp_path: Path) -> None:
    """Losses agree to a relative 1e-5, weights to 1e-4 of their norm. tests/golden/make_golden.py stored PyTorch's."""
    path = tmp_path / "final.npz"
    result = train.train(cases.config(network, scheduler="task", threads=threads, save=str(path)))
    golden = np.load(FOLDER / "golden" / f"{network}.npz")
    np.testing.assert_allclose(result.losses, golden["losses"], rtol=1e-5)
    with np.load(path) as final:
        assert set(final) == set(golden) - {"losses"}
        for name in final:
            error = np.linalg.norm(final[name] - golden[name]) / np.linalg.norm(golden[name])
            assert error <= 1e-4, f"{name}: {error:.2e}"


@TOYS
def test_tasks_read_and_write_what_they_declare(network: str) -> None:
    config = cases.config(network, steps=1)
    data = network_of(config).data(config)
    libraries = table.choose(gemm.load(config.blas, config.precision), [], lambda _: None)
    poison.check(program.build(config), plan(config), lambda memory: fill(memory, config, data), libraries)


def test_a_chunk_of_time_waits_only_for_its_neighbour_in_its_own_group() -> None:
    """Groups of samples are independent. Within a group, a chunk of time follows the previous one in the forward pass,
    and the next one in the backward pass."""
    planned = prepare.plan(cases.config("elman", scheduler="task"))
    label = planned.graph.label
    waits = {label[after] for before, after in planned.graph.edges if label[before] == "recur[1] s4"}
    assert {other for other in waits if other.startswith("recur")} == {"recur[2] s5", "recur[0] s3"}


@TOYS
def test_another_networks_model_is_named_in_json(network: str) -> None:
    config = cases.config(network)
    assert config.to_dict()["model"] == {"network": network}
    assert TrainConfig.from_dict(config.to_dict()) == config
    assert TrainConfig.from_dict({**config.to_dict(), "model": network}) == config


@TOYS
def test_a_server_knows_its_configuration_and_its_memory(network: str) -> None:
    config = cases.config(network)
    assert TrainConfig.from_dict(RunSpec.model_validate(config.to_dict()).model_dump(exclude_none=True)) == config
    planned = prepare.plan(config)
    assert run_memory_bytes(planned.config) == sum(arena.nbytes for arena in Memory(plan(config)).arenas.values())


@TOYS
def test_only_a_fusion_that_the_step_follows_is_accepted_and_reported(network: str) -> None:
    assert prepare.plan(cases.config(network)).config.fusion == "none"
    assert prepare.plan(cases.config(network, fusion="none")).config.fusion == "none"
    with pytest.raises(ConfigError, match="fusion"):
        cases.config(network, fusion="rows")


@TOYS
def test_a_toy_is_short(network: str) -> None:
    lines = (FOLDER / f"support/networks/{network}.py").read_text(encoding="utf-8").splitlines()
    assert sum(bool(line.strip()) for line in lines) <= MOST_LINES
