"""Experiment files: TOML, YAML or JSON with the fields of an experiment request."""

from __future__ import annotations

import difflib
import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from gpt2core.spec.errors import ConfigError, FileError, UnreadableFile, raise_together
from taskloom.contract import edited
from taskloom.contract.experiments import ExperimentRequest

M = TypeVar("M", bound=BaseModel)


class BadRequestFile(FileError):
    """The file contains no experiment request."""

    slug = "bad-request-file"


def read(path: Path) -> ExperimentRequest:
    """Read a request from a file. Raises FileError (unreadable, unknown format) or ConfigError (a rejected value)."""
    readers: dict[str, Callable[[str], Any]] = {
        ".toml": edited.parse_toml,
        ".yaml": _yaml,
        ".yml": _yaml,
        ".json": _json,
    }
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise BadRequestFile(path, f"not one of {', '.join(readers)}")
    try:
        content: Any = reader(edited.read_text(path))
    except OSError as error:
        raise UnreadableFile(path, error.strerror or str(error)) from error
    except (ValueError, LookupError, OverflowError, yaml.YAMLError, RecursionError) as error:  # such as !!bool x
        why = " ".join(str(error).split())
        raise BadRequestFile(path, f"not readable as {path.suffix[1:]}: {why}") from error
    if not isinstance(content, dict):
        raise BadRequestFile(path, "contains no fields of an experiment, such as name, base and axes")
    return parse(content)


FLOAT, INT, TEXT, DATE = (f"tag:yaml.org,2002:{name}" for name in ("float", "int", "str", "timestamp"))
OTHERS = tuple(f"tag:yaml.org,2002:{name}" for name in ("timestamp", "binary", "omap", "pairs", "set"))
MOST_VALUES = 100_000  # of a file, where each alias counts as what it stands for
MOST_ERRORS = 20  # that are reported of a file


class _Loader(yaml.SafeLoader):
    """YAML as people write it: 3e-4 is a number, 010 and 1:30 are none, dates are text. Keys are text, given once."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.value != "<<"]
        for key in keys:
            key.tag = TEXT
        _check_names([key.value for key in keys])
        return super().construct_mapping(node, deep)

    def get_single_node(self) -> yaml.Node | None:
        node: yaml.Node | None = super().get_single_node()
        if node is not None and _values(node, {}) > MOST_VALUES:
            raise ValueError(f"more than {MOST_VALUES:,} values")
        return node


# What an experiment does not consist of is refused, also where it is written as !!set or !!timestamp.
_Loader.yaml_constructors = {tag: make for tag, make in yaml.SafeLoader.yaml_constructors.items() if tag not in OTHERS}
_Loader.yaml_implicit_resolvers = {
    first: [(tag, expression) for tag, expression in rules if tag not in (FLOAT, INT, DATE)]
    for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(INT, re.compile(r"[-+]?(0|[1-9][0-9_]*|0x[0-9a-fA-F_]+|0o[0-7_]+|0b[01_]+)$"),
                              list("-+0123456789"))  # fmt: skip
_Loader.add_implicit_resolver(FLOAT, re.compile(
    r"[-+]?([0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*|[0-9][0-9_]*(?=[eE]))([eE][-+]?[0-9]+)?$"
    r"|[-+]?\.(inf|Inf|INF)$|\.(nan|NaN|NAN)$"
), list("-+.0123456789"))  # fmt: skip


def _values(node: yaml.Node, known: dict[int, int | None]) -> int:
    """The number of values below a node, with those of its aliases. Raises ValueError for an alias within itself."""
    if id(node) in known:
        found = known[id(node)]
        if found is None:
            raise ValueError(f"an alias that contains itself{node.start_mark}")
        return found
    known[id(node)] = None
    parts = node.value if isinstance(node, yaml.CollectionNode) else ()
    values = [part for each in parts for part in (each if isinstance(each, tuple) else (each,))]
    known[id(node)] = found = 1 + sum(_values(value, known) for value in values)
    return found


def _yaml(text: str) -> Any:
    return yaml.load(text, _Loader)


def _json(text: str) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        _check_names([name for name, _ in pairs])
        return dict(pairs)

    return json.loads(text, object_pairs_hook=unique)


def _check_names(names: list[str]) -> None:
    """Raises ValueError."""
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise ValueError(f"given twice: {', '.join(twice)}")


def parse(content: Any) -> ExperimentRequest:
    """Parse a request from plain values. Raises ConfigError for the rejected values."""
    return checked(content, ExperimentRequest)


def checked(content: Any, model: type[M]) -> M:
    """A body from plain values. Raises ConfigError for the rejected values."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise_together([_refused(item) for item in error.errors(include_url=False)[:MOST_ERRORS]])
        raise  # a validation error has errors


def _refused(item: ErrorDetails) -> ConfigError:
    accepted = item["msg"]
    if item["type"] == "extra_forbidden":
        written = str(item["loc"][-1]).strip().lower().replace("-", "_")
        close = difflib.get_close_matches(written, sorted(_field_names()), 1)
        accepted = "no such field" + "".join(f"; did you mean {name}?" for name in close)
    return ConfigError(".".join(map(str, item["loc"])) or "request", item["input"], accepted)


def _field_names() -> set[str]:
    """Of a request and all its parts."""
    schema = ExperimentRequest.model_json_schema()
    return {name for part in (schema, *schema["$defs"].values()) for name in part.get("properties", ())}
