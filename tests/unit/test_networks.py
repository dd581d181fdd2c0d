"""A configuration names its network without loading more than that network needs."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from gpt2core.networks.network import Network, network_of
from gpt2core.spec import networks
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import ConfigError
from gpt2core.spec.models import PRESETS, ModelConfig, model_from

SIZES = "from gpt2core.spec.config import TrainConfig; from gpt2core.networks.memory import memory_bytes"


@pytest.mark.parametrize("name", networks.NETWORKS)
def test_memory_is_known_without_numba(name: str) -> None:
    """Servers and workers need the figure, and do not load Numba."""
    model = f"{{'network': '{name}'}}"
    seq = networks.network(name).model.shortest
    program = f"import sys; {SIZES}; print(sum(memory_bytes(TrainConfig({model}, seq={seq})).values()))"
    program += "; print(sorted({'numba', 'numpy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    size, loaded = done.stdout.split("\n", 1)
    assert int(size) > 0
    assert loaded.strip() == "[]"


@pytest.mark.parametrize("name", networks.NETWORKS)
def test_a_network_has_models_of_its_own_class(name: str) -> None:
    network = networks.network(name)
    assert network.model.network == name
    sizes = [network.model(), *network.presets.values()]
    for model in sizes:
        config = TrainConfig(model, seq=model.shortest)
        assert network_of(config) is network
        assert TrainConfig.from_dict(config.to_dict()) == config
        assert model.step_flop(2, 1) == 2 * model.step_flop(1, 1) > 0


def test_a_gpt2_names_no_network_in_json() -> None:
    model = TrainConfig(model_from("tiny")).to_dict()["model"]
    assert model == {"layers": 2, "heads": 4, "channels": 64, "vocab": 256, "context": 128, "name": "tiny"}
    assert TrainConfig(model_from("gpt2")).model is TrainConfig(model_from("gpt2-124m")).model
    assert TrainConfig(model_from("small")).model == ModelConfig(4, 4, 256, 256, 256, "small")
    assert TrainConfig(model_from({"network": "gpt2", **model})).model == PRESETS["tiny"] == ModelConfig(**model)


@pytest.mark.parametrize("network", ["gpt3", "", 4, None, ["gpt2"]])
def test_an_unknown_network_is_refused_with_those_that_are_known(network: object) -> None:
    with pytest.raises(ConfigError, match=r"model\.network.*gpt2"):
        TrainConfig(model_from({"network": network}))


def test_sizes_that_the_network_does_not_have_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"model\.hidden"):
        TrainConfig(model_from({"network": "gpt2", "hidden": 3}))


def test_a_network_without_a_file_format_refuses_files_of_weights() -> None:
    class Formless(Network):
        """A network without a file format."""

    formless: Any = Formless
    network, config = formless(), TrainConfig(model_from("tiny"), checkpoint="in.bin", save="out.bin")
    with pytest.raises(ConfigError, match=r"checkpoint.*gpt2 has no file format"):
        network.check(config)
    with pytest.raises(ConfigError, match=r"checkpoint.*gpt2 has no file format"):
        network.read(config, {})
    with pytest.raises(ConfigError, match=r"save.*gpt2 has no file format"):
        network.write(config, {})
