"""Registry of the forms of data that a run's `data` names. Standard library only: servers check runs with them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gpt2core.spec.errors import ConfigError
from gpt2core.spec.registry import Registry

if TYPE_CHECKING:
    from gpt2core.spec.config import TrainConfig

CHANNELS, CIFAR_SIDE = 3, 32
TOKENS, IMAGES, PAIRS, CLOZE = "tokens", "images", "pairs", "cloze"  # data that a network reads
END, BEGIN, MISSING = 0, 1, 1  # tokens of pairs and of cloze records that are no words
FOLDERS = {  # what a network reads that is a folder of token files, and how `data` names it
    PAIRS: "pairs:PATH, a folder with source.bin and target.bin",
    CLOZE: "cloze:PATH, a folder with document.bin, query.bin and answer.bin",
}


@dataclass(frozen=True, kw_only=True)
class Data:
    """A form of data. openers: for each kind of data that a network may read, the function that opens it, as
    module:name; it is imported when a run is prepared. has_path: whether `data` names its file or folder."""

    openers: Mapping[str, str] = field(hash=False)
    has_path: bool = False

    def opener(self, kind: str) -> Callable[..., Any]:
        """The function that opens it for networks that read this kind."""
        module, _, name = self.openers[kind].partition(":")
        found: Callable[..., Any] = getattr(importlib.import_module(module), name)
        return found


@dataclass(frozen=True)
class Cifar(Data):
    """Records of `labels` label bytes, of which the last one is used, and then an image's bytes, channel by channel.

    Source: Krizhevsky 2009, https://www.cs.toronto.edu/~kriz/cifar.html (binary version).
    """

    labels: int
    classes: int
    train: tuple[str, ...]
    test: str
    archive: str
    md5: str
    openers: Mapping[str, str] = field(
        default_factory=lambda: {IMAGES: "gpt2core.data.images:open_cifar"}, hash=False, kw_only=True
    )
    has_path: bool = field(default=True, kw_only=True)

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
# Form of data by name. Data with a path is NAME:PATH; a name that is not here is the path of a token file.
DATA: dict[str, Data] = {
    "synthetic": Data(
        openers={
            TOKENS: "gpt2core.data.sources:synthetic_tokens",
            IMAGES: "gpt2core.data.images:open_synthetic",
            PAIRS: "gpt2core.data.pairs:open_synthetic",
            CLOZE: "gpt2core.data.cloze:open_synthetic",
        }
    ),
    "pairs": Data(openers={PAIRS: "gpt2core.data.pairs:open_folder"}, has_path=True),
    "cloze": Data(openers={CLOZE: "gpt2core.data.cloze:open_folder"}, has_path=True),
    "stdlib": Data(openers={TOKENS: "gpt2core.data.sources:open_stdlib"}),
    **CIFAR,
}
TOKEN_FILE = Data(openers={TOKENS: "gpt2core.data.sources:open_file"}, has_path=True)
KNOWN: Registry[Data] = Registry("data", DATA)  # with those of other packages


def parts(data: str) -> tuple[str, str]:
    """Name and path of data with both; no name for other data: ("cifar10", "folder"), ("", "stdlib")."""
    name, colon, path = data.partition(":")
    return (name, path) if colon and name in KNOWN and KNOWN[name].has_path else ("", data)


def form_of(data: str) -> tuple[Data, str]:
    """The form of data, and its path: "" for data without one."""
    name, path = parts(data)
    if name:
        return KNOWN[name], path
    return (KNOWN[data], "") if data in KNOWN and not KNOWN[data].has_path else (TOKEN_FILE, data)


def with_path(data: str, path: str) -> str:
    """The same data at another path."""
    prefix, _ = parts(data)
    return f"{prefix}:{path}" if prefix else path


def conflicts(config: TrainConfig) -> Iterator[ConfigError]:
    """Data that the network of a run does not read, or whose images do not fit its model."""
    model, (prefix, path), (form, _) = config.model, parts(config.data), form_of(config.data)
    if model.reads in FOLDERS:
        if model.reads not in form.openers or (prefix and not path):
            accepted = f"synthetic or {FOLDERS[model.reads]}: network {model.network} reads {model.reads}"
            yield ConfigError("data", config.data, accepted)
        return
    if model.reads != IMAGES:
        if model.reads not in form.openers:
            named = ", ".join(name for name, each in DATA.items() if TOKENS in each.openers)
            accepted = f"{named} or a token file, since network {model.network} reads tokens"
            yield ConfigError("data", config.data, accepted)
        return
    if prefix and not path:
        yield ConfigError("data", config.data, f"{prefix}:PATH, a folder or a .bin file")
    elif isinstance(form, Cifar) and (model.side, model.classes) != (CIFAR_SIDE, form.classes):  # type: ignore[attr-defined]
        fits = f"a {model.network} with side {CIFAR_SIDE} and classes {form.classes}"
        yield ConfigError("data", config.data, f"synthetic, or {fits}, which {prefix} has")
    elif IMAGES not in form.openers:
        accepted = ", ".join(f"{name}:PATH" for name, each in KNOWN.items() if each.has_path and IMAGES in each.openers)
        yield ConfigError("data", config.data, f"synthetic, {accepted}: network {model.network} reads images")
    elif not prefix and config.read_split == "test":
        yield ConfigError("split", "test", "train or val, since synthetic data has no test images")
    if config.read_split == "val" and not (config.val_samples or (prefix and config.val_samples is None)):
        yield ConfigError("val_samples", config.val_samples, "1 or more, which split val reads")
