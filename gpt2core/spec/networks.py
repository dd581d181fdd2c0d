"""Registry of networks, and the sizes that every network's model has."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Self

from gpt2core.spec import data, generation
from gpt2core.spec.data import TOKENS
from gpt2core.spec.errors import ConfigError
from gpt2core.spec.phases import MODES
from gpt2core.spec.registry import Registry

if TYPE_CHECKING:
    from gpt2core.spec.config import TrainConfig

# Network by name: the module whose NETWORK implements networks/network.py. It is imported on first use.
NETWORKS = {
    "gpt2": "gpt2core.networks.gpt2.network",
    "lstm": "gpt2core.networks.lstm.network",
    "resnet": "gpt2core.networks.resnet.network",
    "vgg": "gpt2core.networks.vgg.network",
    "seq2seq": "gpt2core.networks.seq2seq.network",
    "reader": "gpt2core.networks.reader.network",
}
KNOWN = Registry("networks", NETWORKS, "NETWORK")  # with those of other packages
DEFAULT = "gpt2"  # network of a model without the key `network`


# Settings of TrainConfig that only some networks read: those whose `Model.settings` name them.
OWN_SETTINGS = (
    "distribution", "carry_state", "op_order", "unit_slice", "init_scale", "shuffle", "val_samples", "split",
    "evaluate_every", "generate", "prompt", "temperature", "parallel",
)  # fmt: skip


class Model(ABC):
    """Sizes of a network's model. Each network has its own frozen dataclass, whose fields are the JSON keys."""

    network: ClassVar[str]
    settings: ClassVar[tuple[str, ...]] = ("distribution",)  # those of OWN_SETTINGS that it reads
    parallels: ClassVar[tuple[str, ...]] = ("data",)  # what ranks may divide, of those that read `parallel`
    reads: ClassVar[str] = TOKENS
    unit: ClassVar[str] = "tokens"  # what a position of a sample is
    shortest: ClassVar[int] = 1  # minimum number of positions of a sample
    metrics: ClassVar[tuple[str, ...]] = ("loss",)  # of each step: "accuracy" too if it has classes or answers
    precisions: ClassVar[tuple[str, ...]] = ("fp32", "bf16")
    defaults: ClassVar[Mapping[str, Any]] = MappingProxyType({})  # of settings, where they are not TrainConfig's
    optimizer_defaults: ClassVar[Mapping[str, Any]] = MappingProxyType({})  # likewise, unless another one is chosen
    name: str
    context: int  # maximum number of positions of a sample
    vocab: int  # number of tokens or classes

    @abstractmethod
    def step_flop(self, samples: int, positions: int) -> int:
        """Model FLOP of a training step, independent of how it is computed."""

    def forward_flop(self, samples: int, positions: int, rows: int) -> int:  # noqa: ARG002
        """Model FLOP of a forward pass with logits of this number of rows; by default a third of a training step's."""
        return self.step_flop(samples, positions) // 3

    def read_weights(self) -> int:
        """Number of weights that a generated token needs: all but the rows of other tokens and positions in tables. Of
        networks that do not generate 0."""
        return 0

    def read_vectors(self) -> int:
        """How many of these are in no matrix, so that they are float32 with every precision."""
        return 0

    def slices(
        self,
        batch: int,  # noqa: ARG002
        seq: int,  # noqa: ARG002
        threads: int,  # noqa: ARG002
        given: tuple[int | None, int | None],  # noqa: ARG002
    ) -> tuple[int, int] | None:
        """Automatic sizes of slices (samples, positions), where `given` ones are kept; None: those of step/slicing.py.

        One thread gets the slices of two (slicing.sizes), so that both remain comparable.
        """
        return None

    def conflicts(self, config: TrainConfig) -> Iterator[ConfigError]:  # noqa: ARG002
        """Settings of a run that do not fit this model; by default none."""
        return iter(())

    @classmethod
    def from_sizes(cls, sizes: Mapping[str, Any]) -> Self:
        """A model from JSON values. Raises ConfigError for an unknown key or a value that is not accepted."""
        known = [f.name for f in dataclasses.fields(cls)]  # type: ignore[arg-type]
        for key in sizes:
            if key not in known:
                accepted = f"no such setting of {cls.network}; known: " + ", ".join(known)
                raise ConfigError(f"model.{key}", sizes[key], accepted)
        return cls(**sizes)

    def to_dict(self) -> dict[str, Any]:
        """JSON values only. The default network is not named."""
        sizes = dict(vars(self))  # not dataclasses.asdict, which copies deeply
        return sizes if self.network == DEFAULT else {"network": self.network, **sizes}


def conflicts(config: TrainConfig, defaults: Mapping[str, Any]) -> Iterator[ConfigError]:
    """Settings that the network of a run does not read, or that do not fit together."""
    given = vars(config)
    for name in OWN_SETTINGS:
        if given[name] != defaults[name] and name not in config.model.settings:
            accepted = f"the default {defaults[name]!r}, since network {config.model.network} does not read it"
            yield ConfigError(name, given[name], accepted)
    if "parallel" in config.model.settings and config.parallel not in config.model.parallels:
        of_network = f"since ranks of network {config.model.network} divide no other"
        accepted = f"{' or '.join(config.model.parallels)}, {of_network}"
        yield ConfigError("parallel", config.parallel, accepted)
    yield from data.conflicts(config)
    if config.precision not in config.model.precisions:
        accepted = f"{' or '.join(config.model.precisions)}, since network {config.model.network} has no other"
        yield ConfigError("precision", config.precision, accepted)
    if config.fusion is not None and config.fusion not in (fusions := network(config.model.network).fusions):
        yield ConfigError("fusion", config.fusion, f"one of {', '.join(fusions)} with network {config.model.network}")
    yield from config.model.conflicts(config)
    if config.carry_state and config.grad_accum > 1:
        yield ConfigError("carry_state", True, f"false with grad_accum ({config.grad_accum})")
    if config.init_scale and config.checkpoint is not None:
        yield ConfigError("init_scale", config.init_scale, "0 with checkpoint, which has the initial weights")


def own_defaults(config: TrainConfig, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Values of the settings that are not given, of those whose defaults depend on the network, its optimizer, or what
    is generated."""
    given, of_optimizer = vars(config), config.model.optimizer_defaults
    absent = {name: default for name, default in defaults.items() if given[name] is default}
    updates = not any(config.mode == name and not mode.updates for name, mode in MODES.items())
    optimizer = None if "optimizer" in absent and updates else config.optimizer
    own = {
        **config.model.defaults,
        **(of_optimizer if optimizer in (None, of_optimizer.get("optimizer")) else {}),
        **generation.determined(config),
    }
    return {name: own.get(name, default.plain) for name, default in absent.items()}


def defaults_of(model: object) -> frozenset[str]:
    """Settings whose default depends on the network of a model, which is given as JSON."""
    name = model.get("network", DEFAULT) if isinstance(model, Mapping) else DEFAULT
    if name not in KNOWN:
        return frozenset()
    kind: type[Model] = network(name).model
    return frozenset({*kind.defaults, *kind.optimizer_defaults})


def network(name: object) -> Any:
    """The network of that name. Raises ConfigError if there is none."""
    if not isinstance(name, str) or name not in KNOWN:
        raise ConfigError("model.network", name, "one of " + ", ".join(KNOWN))
    return KNOWN.component(name)


def unit_of(model: object) -> str:
    """The unit of a model, which is given as JSON."""
    name = model.get("network", DEFAULT) if isinstance(model, Mapping) else DEFAULT
    found: str = network(name).model.unit if name in KNOWN else Model.unit
    return found


def sizes_of(name: str) -> tuple[str, ...]:
    """The sizes of a network's models, as JSON keys without `network`."""
    return tuple(item.name for item in dataclasses.fields(network(name).model))


def presets() -> dict[str, Model]:
    """Models of well-known sizes by name, network by network."""
    return {name: model for each in KNOWN for name, model in network(each).presets.items()}


def preset(name: str) -> Model | None:
    """The model of that name. None: no network has one."""
    return next((network(each).presets[name] for each in KNOWN if name in network(each).presets), None)
