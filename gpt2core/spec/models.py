"""Models by name or by sizes. GPT-2's is here; each other network has its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from gpt2core.spec import generation, networks
from gpt2core.spec.errors import ConfigError
from gpt2core.spec.fields import check_int
from gpt2core.spec.networks import Model

if TYPE_CHECKING:
    from gpt2core.spec.config import TrainConfig


@dataclass(frozen=True)
class ModelConfig(Model):
    """A GPT-2's shape. L layers, NH heads, C channels, V vocabulary (padded to Vp), T at most `context`."""

    network: ClassVar[str] = "gpt2"
    settings: ClassVar[tuple[str, ...]] = ("distribution", "parallel", *generation.SETTINGS)
    parallels: ClassVar[tuple[str, ...]] = ("data", "tensor")

    layers: int = 12
    heads: int = 12
    channels: int = 768
    vocab: int = 50257
    context: int = 1024
    name: str = "custom"

    def __post_init__(self) -> None:
        for name, high in (("layers", 1000), ("heads", 1000), ("channels", 65536), ("context", 1 << 20)):
            check_int(name, getattr(self, name), 1, high)
        check_int("vocab", self.vocab, 1, 1 << 16)  # tokens are uint16
        if not isinstance(self.name, str):
            raise ConfigError("name", self.name, "a string")
        if self.channels % self.heads:
            raise ConfigError("channels", self.channels, f"a multiple of heads ({self.heads})")

    def conflicts(self, config: TrainConfig) -> Iterator[ConfigError]:
        ranks = config.matrix_ranks
        if self.heads % ranks:
            yield ConfigError("ranks", ranks, f"with parallel tensor a divisor of the model's heads ({self.heads})")
        width, rest = divmod(self.padded_vocab, ranks)
        if rest or (ranks - 1) * width >= self.vocab:
            accepted = f"with parallel tensor a divisor of the padded vocabulary ({self.padded_vocab})"
            yield ConfigError("ranks", ranks, f"{accepted} that leaves each rank some of its {self.vocab} tokens")

    @property
    def padded_vocab(self) -> int:
        """Vp: V rounded up to a multiple of 128, as llm.c pads it."""
        return -(-self.vocab // 128) * 128

    def step_flop(self, samples: int, positions: int) -> int:
        """Model FLOP of a step: 6 x parameters in matrix products x tokens, plus half of attention's 12 L C T x tokens,
        since the causal mask removes the other half. Recomputation is not counted.

        Source: Chowdhery et al. 2022 (PaLM), appendix B: model-FLOP utilisation.
        """
        return 3 * self.forward_flop(samples, positions, samples * positions)

    def read_vectors(self) -> int:
        return self.layers * 13 * self.channels + 2 * self.channels

    def read_weights(self) -> int:
        C = self.channels
        return self.layers * (12 * C**2 + 13 * C) + self.padded_vocab * C + 3 * C

    def forward_flop(self, samples: int, positions: int, rows: int) -> int:
        layers = self.layers * (12 * self.channels**2 + self.channels * positions)
        return 2 * layers * samples * positions + 2 * self.padded_vocab * self.channels * rows


PRESETS = {
    "tiny": ModelConfig(layers=2, heads=4, channels=64, vocab=256, context=128, name="tiny"),
    "small": ModelConfig(4, 4, 256, 256, 256, "small"),
    "gpt2-124m": ModelConfig(12, 12, 768, 50257, 1024, "gpt2-124m"),
    "gpt2-350m": ModelConfig(24, 16, 1024, 50257, 1024, "gpt2-350m"),
    "gpt2-774m": ModelConfig(36, 20, 1280, 50257, 1024, "gpt2-774m"),
    "gpt2-1.5b": ModelConfig(48, 25, 1600, 50257, 1024, "gpt2-1.5b"),
}
PRESETS["gpt2"] = PRESETS["gpt2-124m"]  # Hugging Face's name for it


def model_names() -> tuple[str, ...]:
    """Names of models: every network's presets, and the networks whose name alone selects default sizes."""
    return (*networks.presets(), *(name for name in networks.KNOWN if name != networks.DEFAULT))


def preset_name(name: str) -> str:
    """The name that a model has in configurations: gpt2-124m for its alias gpt2. Other names are their own."""
    preset = networks.preset(name)
    return name if preset is None else preset.name


def model_from(value: object) -> Model:
    """A model from its name, from its sizes, or from itself.

    Sizes with the key `network` describe a model of that network, sizes without it a GPT-2. Raises ConfigError.
    """
    if isinstance(value, Model):
        return value
    if isinstance(value, str):
        if (preset := networks.preset(value)) is not None:
            return preset
        if value in networks.KNOWN:
            value = {"network": value}
    if isinstance(value, Mapping):
        sizes = {"network": networks.DEFAULT, **value}
        model: Model = networks.network(sizes.pop("network")).model.from_sizes(sizes)
        return model
    raise ConfigError("model", value, f"one of {', '.join(model_names())}, or a mapping of a network's sizes")


def wrong_sizes(value: object) -> list[ConfigError]:
    """Every size that no model of the network has, whatever the others; none for what is no mapping of sizes."""
    network = value.get("network", networks.DEFAULT) if isinstance(value, Mapping) else None
    if not isinstance(value, Mapping) or not isinstance(network, str) or network not in networks.KNOWN:
        return []
    ones = {name: 1 for name, size in model_from({"network": network}).to_dict().items() if type(size) is int}
    found = []
    for name, size in value.items():
        errors = [error for others in ({}, ones) if (error := _refused({"network": network, **others, name: size}))]
        if [error.field.removeprefix("model.") for error in errors] == [name, name]:
            found.append(errors[0])
    return found


def _refused(sizes: Mapping[str, object]) -> ConfigError | None:
    try:
        model_from(sizes)
    except ConfigError as error:
        return error
    return None
