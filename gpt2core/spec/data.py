"""Formats of image data, by the prefix of a run's `data`. Standard library only: servers check runs with them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpt2core.spec.errors import ConfigError
from gpt2core.spec.registry import Registry

if TYPE_CHECKING:
    from gpt2core.spec.config import TrainConfig

CHANNELS, CIFAR_SIDE = 3, 32


@dataclass(frozen=True)
class Cifar:
    """Records of `labels` label bytes, of which the last one is used, and then an image's bytes, channel by channel.

    Source: Krizhevsky 2009, https://www.cs.toronto.edu/~kriz/cifar.html (binary version).
    """

    labels: int
    classes: int
    train: tuple[str, ...]
    test: str
    archive: str
    md5: str

    @property
    def record_bytes(self) -> int:
        return self.labels + CHANNELS * CIFAR_SIDE**2


CIFAR = {
    "cifar10": Cifar(
        1, 10, tuple(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin",
        "cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530",
    ),
    "cifar100": Cifar(
        2, 100, ("train.bin",), "test.bin", "cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8"
    ),
}  # fmt: skip
KNOWN = Registry("data", CIFAR)  # with those of other packages, whose images have the same form


def parts(data: str) -> tuple[str, str]:
    """Prefix and path of image data; no prefix for other data: ("cifar10", "folder"), ("", "stdlib")."""
    prefix, colon, path = data.partition(":")
    return (prefix, path) if colon and prefix in KNOWN else ("", data)


def with_path(data: str, path: str) -> str:
    """The same data at another path."""
    prefix, _ = parts(data)
    return f"{prefix}:{path}" if prefix else path


def conflicts(config: TrainConfig) -> Iterator[ConfigError]:
    """Data that the network of a run does not read, or whose images do not fit its model."""
    model, (prefix, path) = config.model, parts(config.data)
    if model.reads != "images":
        if prefix:
            accepted = f"synthetic, stdlib or a token file, since network {model.network} reads tokens"
            yield ConfigError("data", config.data, accepted)
        return
    if prefix and not path:
        yield ConfigError("data", config.data, f"{prefix}:PATH, a folder or a .bin file")
    elif prefix and (model.side, model.classes) != (CIFAR_SIDE, KNOWN[prefix].classes):  # type: ignore[attr-defined]
        fits = f"a {model.network} with side {CIFAR_SIDE} and classes {KNOWN[prefix].classes}"
        yield ConfigError("data", config.data, f"synthetic, or {fits}, which {prefix} has")
    elif not prefix and config.data != "synthetic":
        accepted = ", ".join(f"{name}:PATH" for name in KNOWN)
        yield ConfigError("data", config.data, f"synthetic, {accepted}: network {model.network} reads images")
    elif not prefix and config.read_split == "test":
        yield ConfigError("split", "test", "train or val, since synthetic data has no test images")
    if config.read_split == "val" and not (config.val_samples or (prefix and config.val_samples is None)):
        yield ConfigError("val_samples", config.val_samples, "1 or more, which split val reads")
