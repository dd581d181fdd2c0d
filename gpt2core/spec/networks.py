"""The networks that there are, and what a configuration knows of any network's model."""

from __future__ import annotations

import dataclasses
import importlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from gpt2core.spec.errors import ConfigError

# A network's name, and the module whose NETWORK is what networks/network.py asks for. It is imported once it is named.
NETWORKS = {
    "gpt2": "gpt2core.networks.gpt2.network",
}
DEFAULT = "gpt2"  # the network of a model that names none


class Model(ABC):
    """The sizes of a network's model. A network has a frozen dataclass of its own, whose fields are the JSON keys."""

    network: ClassVar[str]
    name: str
    context: int  # most positions of a sample
    vocab: int  # tokens, or classes, that a target is one of

    @abstractmethod
    def step_flop(self, samples: int, positions: int) -> int:
        """Flop that a training step of the model takes, however it is computed."""

    @classmethod
    def from_sizes(cls, sizes: Mapping[str, Any]) -> Self:
        """A model from JSON values. Raises ConfigError for an unknown key or a value that is not accepted."""
        known = [f.name for f in dataclasses.fields(cls)]  # type: ignore[arg-type]
        for key in sizes:
            if key not in known:
                raise ConfigError(f"model.{key}", sizes[key], "no such setting; known: " + ", ".join(known))
        return cls(**sizes)

    def to_dict(self) -> dict[str, Any]:
        """JSON values only. Only a network other than the default one is named."""
        sizes = dict(vars(self))  # not dataclasses.asdict, which copies deeply
        return sizes if self.network == DEFAULT else {"network": self.network, **sizes}


def network(name: object) -> Any:
    """The network of that name. Raises ConfigError if there is none."""
    if not isinstance(name, str) or name not in NETWORKS:
        raise ConfigError("model.network", name, "one of " + ", ".join(NETWORKS))
    return importlib.import_module(NETWORKS[name]).NETWORK
