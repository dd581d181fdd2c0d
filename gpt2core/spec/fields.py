"""How a setting is declared: its field's metadata, its role, its check, and the values that several settings accept."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import Field, field
from functools import partial
from typing import Any

from gpt2core.spec.errors import ConfigError

SYNCS = ("phase", "step", "none")
PRECISIONS = ("fp32", "bf16")
BLAS = ("auto", "own", "mkl", "openblas")
POLICIES = ("breadth-first", "critical-path", "program-order")
ASSIGNMENTS = ("static", "dynamic")
FUSIONS = ("none", "rows", "all")
OP_ORDERS = ("layers", "diagonals")
PARALLELS = ("data", "tensor", "hybrid")
DISTRIBUTIONS = ("zipf", "uniform")
LOGITS = ("all", "last", "none-kept")
SHUFFLES = ("epoch", "none")
SPLITS = ("train", "val", "test")
MOST_CORES = 4096  # longest accepted list of cores
AUTO = None  # the trainer chooses the slice size
# What a setting determines, and so whether results that differ in it can be compared. Each setting has one role.
ROLES = {
    "size": "the computation and its time: results that differ in it are never compared",
    "values": "the numbers that are computed, not the time: results that differ in it are never compared",
    "seed": "as values, but a series of runs may contain several",
    "slices": "the rounding of sums and the time: experiments compare its values",
    "order": "the order of tasks and who executes them: experiments compare its values",
    "place": "the cores",
    "length": "the number of steps",
    "output": "files that the trainer writes",
    "permission": "what the trainer refuses",
}


Check = Callable[[str, object], object]  # of a setting's name and value; raises ConfigError


# What a setting's field declares. Every list of settings follows from it (tests/unit/test_roles.py).
DECLARED = {
    "help": "the sentence of command line, form and reference",
    "role": "a key of ROLES",
    "choices": "the accepted values",
    "low": "the smallest accepted integer",
    "high": "the largest accepted integer",
    "check": "of values other than the default, where choices or low and high do not say it",
    "unit": "what a number counts",
    "group": "heading under which the form of an experiment shows it at once: training or parallelisation",
    "main": "place among the settings that lists, exports and histories show",
    "resolved": "results state it even if the run left it open",
    "by_network": "networks (Model.defaults) and generation may have another default",
    "later": "results and workers from before this setting lack it; in-keys: keys of series contain its default",
}


def setting(default: Any, help: str, role: str, **meta: Any) -> Any:
    """A dataclass field with the metadata that DECLARED describes. Raises TypeError for other metadata."""
    if unknown := meta.keys() - DECLARED.keys():
        raise TypeError(f"a setting declares no {', '.join(sorted(unknown))}")
    if meta.get("by_network"):  # known by its identity, so that a given value stays, also an equal one
        default = type("Default", (type(default),), {"plain": default})(default)
    return field(default=default, metadata={"help": help, "role": role, **meta})


def checks(fields: Iterable[Field[Any]]) -> Iterator[tuple[str, object, Check]]:
    """Name, default and check of each setting that is checked by itself."""
    for item in fields:
        meta = item.metadata
        if "check" in meta:
            yield item.name, item.default, meta["check"]
        elif "choices" in meta:
            yield item.name, item.default, partial(check_choice, choices=meta["choices"])
        elif "low" in meta:
            yield item.name, item.default, partial(check_int, low=meta["low"], high=meta.get("high"))


def caught(check: Callable[..., object], *arguments: object) -> list[ConfigError]:
    """The error that a check raises, if any."""
    try:
        check(*arguments)
    except ConfigError as error:
        return [error]
    return []


def check_int(name: str, value: object, low: int, high: int | None = None, accepted: str = "") -> None:
    """Raise ConfigError unless value is an integer in [low, high]."""
    if isinstance(value, bool) or not isinstance(value, int) or value < low or (high is not None and value > high):
        span = f"an integer of {low} or more" if high is None else f"an integer from {low} to {high}"
        raise ConfigError(name, value, accepted or span)


def check_number(name: str, value: object, low: float, high: float, accepted: str) -> None:
    """Raise ConfigError unless value is a finite number with low <= value < high."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value < high:  # nan compares false
        raise ConfigError(name, value, accepted)


def check_choice(name: str, value: object, choices: Collection[str]) -> None:
    """Raise ConfigError unless value is one of choices."""
    if value not in choices:
        raise ConfigError(name, value, "one of " + ", ".join(choices))


def check_path(name: str, value: object) -> None:
    """Raise ConfigError unless value can name a file."""
    if not isinstance(value, str) or not value or "\0" in value:
        raise ConfigError(name, value, "a name or a path")


def check_bool(name: str, value: object) -> None:
    """Raise ConfigError unless value is true or false."""
    if not isinstance(value, bool):
        raise ConfigError(name, value, "true or false")


SHARE = partial(check_number, low=0.0, high=1.0, accepted="a number of 0 or more and below 1")
AMOUNT = partial(check_number, low=0.0, high=1e6, accepted="a number of 0 or more and below 1000000")
EPSILON = partial(check_number, low=1e-30, high=1.0, accepted="a number above 0 and below 1")


def parse_cores(value: object) -> tuple[int, ...]:
    """Core numbers from "0-3,8" or from a sequence of integers; sorted as given, without repeats."""
    accepted = "core numbers such as 0-3,8 without repeats"
    cores: list[int] = []
    if isinstance(value, str):
        for part in value.split(","):
            first, dash, last = part.strip().partition("-")
            if not _is_number(first) or (dash and not _is_number(last)):
                raise ConfigError("cores", value, accepted)
            low, high = int(first), int(last) if dash else int(first)
            if high < low or high - low > MOST_CORES or len(cores) > MOST_CORES:
                raise ConfigError("cores", value, accepted)
            cores.extend(range(low, high + 1))
    elif isinstance(value, list | tuple) and len(value) <= MOST_CORES:
        for core in value:
            check_int("cores", core, 0, 1 << 16, accepted)
        cores.extend(value)
    else:
        raise ConfigError("cores", value, accepted)
    if not cores or len(set(cores)) != len(cores):
        raise ConfigError("cores", value, accepted)
    return tuple(cores)


def _is_number(text: str) -> bool:
    return len(text) <= 6 and text.isdecimal()  # int() raises another error for very long texts


def parse_op_threads(value: object, threads: int) -> dict[str, int]:
    """Threads by op name from "qkv=2,layernorm=1" or from a mapping. The step program checks the names."""
    accepted = f"op=threads pairs such as qkv=2,layernorm=1, each from 1 to threads ({threads})"
    if isinstance(value, str):
        pairs = [part.strip().partition("=") for part in value.split(",")]
        if any(not _is_number(number) for _, _, number in pairs):
            raise ConfigError("op_threads", value, accepted)
        value = {name: int(number) for name, _, number in pairs}
    if not isinstance(value, Mapping) or not value or not all(isinstance(name, str) for name in value):
        raise ConfigError("op_threads", value, accepted)
    for count in value.values():
        check_int("op_threads", count, 1, threads, accepted)
    return dict(value)
