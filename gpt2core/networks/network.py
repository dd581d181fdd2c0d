"""Interface of a network. A network is a folder here and a line in gpt2core/spec/networks.py."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from gpt2core.spec import networks
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import ConfigError
from gpt2core.spec.networks import Model
from gpt2core.step.tensors import TensorSpec

if TYPE_CHECKING:  # loaded by trainers only
    import numpy as np
    from numpy.typing import NDArray

    from gpt2core.step.builder import Builder

    Weights = Mapping[str, NDArray[np.float32]]
    AtFirst = Callable[[NDArray[np.float32]], list[NDArray[np.float32]]]


class Network(Protocol):
    """A kind of model that can be trained.

    Its module loads neither Numba nor NumPy, because servers and workers size runs with it.
    """

    model: ClassVar[type[Model]]  # the class of its models' sizes
    presets: ClassVar[Mapping[str, Model]] = {}  # models of well-known sizes by their names, from small to large
    fusions: ClassVar[tuple[str, ...]] = ("none",)  # values of spec.fields.FUSIONS that its step supports
    decays_biases: ClassVar[bool] = True  # whether weight_decay holds for the biases of matrices too

    def tensors(self, config: TrainConfig) -> Mapping[str, list[TensorSpec]]:
        """Every tensor by its arena's kind, without those that every run has (memory.run_specs).

        Activations are named by what they are, and share memory if their lives allow it (networks/lifetimes.py). Those
        that the step does not use get none.
        """

    def forward(self, config: TrainConfig, step: Builder) -> None:
        """Add the ops of a micro-batch, from its data to its loss. The slices are resolved.

        The reverse pass and the update follow from what the layers leave on the tape (networks/reverse.py).
        """

    def data(self, config: TrainConfig) -> Mapping[str, NDArray[np.generic]]:
        """Data that a run reads and never writes: samples, and tables of the slices' rows. Raises InputError.

        An array whose name is a tensor's is copied there, any other one is used where it lies. With evaluate_every
        there are also the entries of `order` that evaluations read, as `evaluated`.
        """

    def checksums(self, config: TrainConfig) -> Mapping[str, str]:  # noqa: ARG002
        """SHA-256 of each file of the run's data, by its name. Raises InputError."""
        return {}

    def initialise(self, config: TrainConfig, weights: Weights) -> None:
        """Fill the weights of a new model: the same numbers for the same seed on every machine."""

    def fill(self, config: TrainConfig, rank: int, weights: Weights) -> None:  # noqa: ARG002
        """Fill a rank's weights from the checkpoint or the seed. By default all ranks have the whole model's. Raises
        InputError."""
        (self.initialise if config.checkpoint is None else self.read)(config, weights)

    def whole(self, config: TrainConfig, weights: Weights, at_first: AtFirst) -> Weights:  # noqa: ARG002
        """On rank 0 the weights of the whole model, from those of all ranks. By default each rank has them. at_first:
        the arrays of all ranks, on rank 0; nothing on the others."""
        return weights

    def check(self, config: TrainConfig) -> None:
        """Raise ConfigError for a setting that this network does not support; by default: files of weights."""
        for name in ("checkpoint", "save"):
            if getattr(config, name) is not None:
                raise _no_file_format(config, name)

    def claims(self, names: Collection[str]) -> bool:  # noqa: ARG002
        """Whether a safetensors file with tensors of these names contains a model of this network."""
        return False

    def model_in(self, path: str) -> Model:
        """The model in a file of weights, from its header; by default refused. Raises InputError."""
        raise ConfigError("checkpoint", path, f"nothing, since {self.model.network} has no file format")

    def read(self, config: TrainConfig, weights: Weights) -> None:  # noqa: ARG002
        """Fill the weights from config.checkpoint; by default refused, as in `check`.

        Raises InputError; nothing is written unless all sizes agree.
        """
        raise _no_file_format(config, "checkpoint")

    def checkpoint(self, config: TrainConfig) -> Mapping[str, Any]:  # noqa: ARG002
        """Format of config.checkpoint, and that of its numbers, as the result has them."""
        return {}

    def write(self, config: TrainConfig, weights: Weights) -> None:  # noqa: ARG002
        """Write the weights to config.save, all or nothing; by default refused, as in `check`. Raises InputError."""
        raise _no_file_format(config, "save")


class InFiles(Network):
    """A network whose weights are stored in files: its module `files`, or the `module:name` in it, has the functions
    that these methods call. It is imported when one of them is needed, since it loads NumPy.
    """

    files: ClassVar[str]

    def _files(self) -> Any:
        module, _, name = self.files.partition(":")
        found = importlib.import_module(module)
        return getattr(found, name) if name else found

    def check(self, config: TrainConfig) -> None:
        if config.save is not None:
            self._files().check_suffix(config.save)

    def model_in(self, path: str) -> Model:
        found: Model = self._files().read_model(path)
        return found

    def read(self, config: TrainConfig, weights: Weights) -> None:
        self._files().read_checkpoint(config.checkpoint, config.model, weights)

    def checkpoint(self, config: TrainConfig) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self._files().about(config.checkpoint)
        return found

    def write(self, config: TrainConfig, weights: Weights) -> None:
        self._files().write_checkpoint(config.save, config.model, weights)


def _no_file_format(config: TrainConfig, setting: str) -> ConfigError:
    """Error for a file of weights of a network without a file format."""
    return ConfigError(setting, getattr(config, setting), f"nothing, since {config.model.network} has no file format")


def model_in(path: str, name: str | None = None) -> Model:
    """The model in a file of weights. Without a network's name, the network that claims the file's tensors, by default
    GPT-2. Raises InputError.
    """
    from gpt2core.networks import shards  # loads NumPy

    if name is None:
        names = shards.read_tensors(path).stored.keys() if shards.is_safetensors(path) else ()
        name = next((each for each in networks.KNOWN if networks.network(each).claims(names)), networks.DEFAULT)
    found: Model = networks.network(name).model_in(path)
    return found


def network_of(config: TrainConfig) -> Network:
    """The network whose model a configuration trains."""
    found: Network = networks.network(config.model.network)
    return found
