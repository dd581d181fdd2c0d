"""Command-line options, derived from the fields of TrainConfig and ModelConfig."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from gpt2core.node.files import open_regular
from gpt2core.spec.config import NAMES, TrainConfig
from gpt2core.spec.errors import ConfigError, UnreadableFile, raise_together
from gpt2core.spec.field_types import field_type
from gpt2core.spec.generation import MOST_TEXT
from gpt2core.spec.models import ModelConfig, model_from, model_names
from gpt2core.spec.networks import KNOWN, Model, sizes_of

SIZES = {
    "layers": "L: number of layers",
    "heads": "gpt2: NH: attention heads",
    "channels": "gpt2: C: channels, a multiple of heads",
    "embedding": "lstm, seq2seq, reader: E: width of the embedding",
    "hidden": "lstm: H: hidden units of a layer; vgg: outputs of a dense layer; seq2seq: H: hidden units of the "
    "decoder, half of them for each direction of the encoder; reader: H: hidden units of each direction",
    "query": "reader: Q: most words of a query",
    "tied": "lstm: the head's weight is the embedding's; needs E = H",
    "blocks": "resnet: blocks of a stage",
    "width": "resnet, vgg: channels of the first stage",
    "classes": "resnet, vgg: number of classes",
    "side": "resnet, vgg: rows and columns of the images",
    "vocab": "V: size of the vocabulary",
    "context": "longest sequence",
}
FLAGS = ("tied",)  # sizes that are true or false
SINGLE = ("cores", "op_threads", "prompt")  # options whose values contain commas
PAIRS = {"stop_at": "METRIC=X"}  # options whose values are pairs
F = TypeVar("F", bound=Callable[..., Any])


def _kind(name: str) -> type:
    """Type of a setting's value: int, float, str or bool."""
    annotation = field_type(name)
    for kind in (bool, int, float):
        if annotation in (kind, kind | None):
            return kind
    return str


def _declaration(name: str) -> str:
    return "--" + name.replace("_", "-")


def comma_list(_context: click.Context, _option: click.Parameter, texts: tuple[str, ...]) -> str | None:
    """Callback of an option that takes a comma list and may be repeated: all values as one list, None without any."""
    return ",".join(texts) if texts else None


def _train_option(item: dataclasses.Field[Any], several: bool) -> Callable[[F], F]:
    meta, kind = item.metadata, _kind(item.name)
    choices = model_names() if item.name == "model" else meta.get("choices")
    text = str(meta.get("help", ""))
    if item.default is not None and item.name != "model":
        text += f"  [default: {str(item.default).lower() if kind is bool else item.default}]"
    if several and choices:
        text += f"  [{', '.join(choices)}]"
    if kind is bool:
        return click.option(_declaration(item.name), item.name, is_flag=True, default=None, help=text)
    if several and item.name not in SINGLE:
        return click.option(_declaration(item.name), item.name, multiple=True, callback=comma_list, help=text)
    metavar = PAIRS.get(item.name)
    shown: Any = click.Choice(tuple(choices)) if choices and not several else str if item.name in SINGLE else kind
    return click.option(_declaration(item.name), item.name, type=shown, default=None, metavar=metavar, help=text)


def train_options(several: bool, without: Collection[str] = ()) -> Callable[[F], F]:
    """Every setting as an option. With `several` an option takes a comma list and may be repeated, otherwise it takes
    one value. without: settings without an option."""

    def decorate(command: F) -> F:
        kind: Any = {"multiple": True, "callback": comma_list} if several else {"type": int, "default": None}
        for name, text in reversed(SIZES.items()):
            how = {"is_flag": True, "default": None} if name in FLAGS else kind
            command = click.option(_declaration(name), name, help=text, **how)(command)
        text = "kind of model; default: the model's, or gpt2"
        command = click.option("--network", type=click.Choice(list(KNOWN)), default=None, help=text)(command)
        for item in reversed(dataclasses.fields(TrainConfig)):
            if item.name in without or (several and item.name == "trace"):
                continue  # a local file, since nodes trace apart
            command = _train_option(item, several)(command)
        return command

    return decorate


prompt_file_option = click.option(
    "--prompt-file", type=click.Path(path_type=Path), default=None, metavar="FILE",
    help="file with the token ids of the prompt, separated by commas or white space",
)  # fmt: skip


def prompt_of(file: Path | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """The setting `prompt` from a file; without one none. Raises ConfigError for a second prompt, UnreadableFile."""
    if file is None:
        return {}
    if given.get("prompt") is not None:
        raise ConfigError("prompt", given["prompt"], "either --prompt or --prompt-file")
    with open_regular(file) as (stream, _):
        text = stream.read(MOST_TEXT + 1)
    if len(text) > MOST_TEXT:
        raise UnreadableFile(file, f"more than {MOST_TEXT} bytes, which no prompt needs")
    try:
        return {"prompt": text.decode("utf-8-sig")}
    except UnicodeDecodeError as error:
        raise UnreadableFile(file, f"not text: {error}") from None


def model_value(preset: str | None, sizes: Mapping[str, int], network: str | None = None) -> Any:
    """The model of a preset, or of a network, and sizes: given sizes replace those of the preset, or the default ones
    of the network (gpt2 if none). Raises ConfigError for sizes and presets of another network.
    """
    base: Model | None = None if preset is None and network is None else model_from(preset or network)
    if base is not None and network not in (None, base.network):
        raise ConfigError("network", network, f"{base.network}, the network of {preset}")
    if not sizes:
        return preset or network
    base = ModelConfig() if base is None else base
    known = base.to_dict()
    for name, value in sizes.items():
        if name not in known:
            owners = [each for each in KNOWN if name in sizes_of(each)]
            accepted = f"no size of {base.network}, but of {', '.join(owners)}; {base.network} has "
            accepted += ", ".join(each for each in SIZES if each in known)
            raise ConfigError(name, value, accepted)
    return {key: sizes.get(key, value) for key, value in known.items() if key != "name"}


def single_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """TrainConfig's JSON values from options with one value each; options that were not given are left out."""
    settings = {k: v for k, v in given.items() if v is not None and k not in SIZES}
    sizes = {name: given[name] for name in SIZES if given.get(name) is not None}
    model = model_value(settings.pop("model", None), sizes, settings.pop("network", None))
    return settings if model is None else {**settings, "model": model}


def _values(name: str, text: str, kind: type) -> list[Any]:
    if name in SINGLE:
        return [text]
    out, errors = [], []
    for part in text.split(","):
        try:
            out.append(kind(part.strip()))
        except ValueError:
            expected = "an integer" if kind is int else "a number"
            errors.append(ConfigError(name, part, f"{expected}, or several separated by commas"))
    raise_together(errors)
    return out


STOP_RULE = {"rel_ci": float, "max_repetitions": int, "budget_s": float}


def stop_rule(text: str) -> dict[str, int | float]:
    """An experiment's `stop` from name=value pairs. Raises ConfigError for text; the contract checks the numbers."""
    found: dict[str, int | float] = {}
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        kind = STOP_RULE.get(name)
        if kind is None or name in found:
            raise ConfigError("stop", text, "NAME=VALUE,..., each name at most once: " + ", ".join(STOP_RULE))
        try:
            found[name] = kind(value)
        except ValueError:
            expected = "an integer" if kind is int else "a number"
            raise ConfigError(f"stop.{name}", value, expected) from None
    return found


require_option = click.option(
    "--require", "required", multiple=True, metavar="KEY=VALUE",
    help="a label that the worker must have; may be repeated",
)  # fmt: skip


def required_labels(texts: Sequence[str]) -> dict[str, str]:
    """Labels from KEY=VALUE. Raises ConfigError."""
    labels: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals or not value:
            raise ConfigError("require", text, "KEY=VALUE, a label of a worker, such as cpu=epyc")
        if labels.setdefault(key, value) != value:
            raise ConfigError("require", text, f"one value of {key}; {key}={labels[key]} was given, too")
    return labels


QUESTION = "SETTING=VALUE,... vs SETTING=VALUE,..., such as scheduler=task,threads=2 vs scheduler=fork-join,threads=2"


def question(text: str) -> dict[str, dict[str, Any]]:
    """An experiment's `primary` from two sides: the verdict is about the first. Raises ConfigError."""
    sides = text.split(" vs ")
    if len(sides) != 2:
        raise ConfigError("primary", text, QUESTION)
    b, a = (_side(part, text) for part in sides)
    return {"a": a, "b": b}


def _side(part: str, text: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for each in part.split(","):
        name, equals, value = (piece.strip() for piece in each.partition("="))
        if not equals or not value or name in found:
            raise ConfigError("primary", text, QUESTION)
        if name not in (*NAMES, "build"):
            raise ConfigError("primary", name, "a setting: " + ", ".join(NAMES))
        kind = str if name == "build" else _kind(name)
        try:
            found[name] = {"true": True, "false": False}[value] if kind is bool else kind(value)
        except (ValueError, KeyError):
            expected = {int: "an integer", float: "a number", bool: "true or false"}[kind]
            raise ConfigError(f"primary.{name}", value, expected) from None
    return found


def _one(name: str, text: str, kind: type) -> Any:
    """One value of a setting. Raises ConfigError."""
    try:
        return {"true": True, "false": False}[text] if kind is bool else kind(text)
    except (ValueError, KeyError):
        expected = {int: "an integer", float: "a number", bool: "true or false"}[kind]
        raise ConfigError(name, text, expected) from None


def space_values(texts: Sequence[str]) -> dict[str, list[Any]]:
    """The values of settings from SETTING=V1,V2,... or, of values with commas, SETTING=V1;V2;...; default: null. Raises
    ConfigError."""
    found: dict[str, list[Any]] = {}
    for text in texts:
        name, equals, values = (piece.strip() for piece in text.partition("="))
        if not equals or values in ("", ";") or name in found:
            raise ConfigError("space", text, "SETTING=V1,V2,..., each setting once, such as threads=1,2,4")
        if name not in NAMES:
            raise ConfigError("space", name, "a setting: " + ", ".join(NAMES))
        kind = _kind(name)
        parts = values.removesuffix(";").split(";" if ";" in values else ",")
        found[name] = [None if part.strip() == "default" else _one(name, part.strip(), kind) for part in parts]
    return found


def several_settings(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """A base and axes from options with comma lists: one value goes to the base, more become an axis.

    Raises ConfigError for text in place of a number; the server makes all other checks.
    """
    lists: dict[str, list[Any]] = {}
    sizes: dict[str, list[Any]] = {}
    errors: list[ConfigError] = []
    network = given.get("network")
    for name, text in given.items():
        if text is None or name == "network":
            continue
        try:
            if name in SIZES:
                sizes[name] = [text] if name in FLAGS else _values(name, text, int)
            elif isinstance(text, bool):
                lists[name] = [text]
            else:
                lists[name] = _values(name, text, _kind(name))
        except ConfigError as error:
            errors += [error, *error.others]
    raise_together(errors)
    if sizes or network:
        presets = lists.get("model", [None])
        lists["model"] = [
            model_value(preset, dict(zip(sizes, combination, strict=True)), network)
            for preset in presets
            for combination in itertools.product(*sizes.values())
        ]
    base = {name: values[0] for name, values in lists.items() if len(values) == 1}
    return base, {name: values for name, values in lists.items() if len(values) > 1}
