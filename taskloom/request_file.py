"""Experiment files: TOML, YAML or JSON with the fields of an experiment request."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from gpt2core.spec.errors import ConfigError, FileError, UnreadableFile, raise_together
from taskloom.contract.experiments import ExperimentRequest


class BadRequestFile(FileError):
    """The file contains no experiment request."""

    slug = "bad-request-file"


def read(path: Path) -> ExperimentRequest:
    """Read a request from a file. Raises FileError (unreadable, unknown format) or ConfigError (a rejected value)."""
    readers: dict[str, Callable[[str], Any]] = {
        ".toml": tomllib.loads,
        ".yaml": _yaml,
        ".yml": _yaml,
        ".json": _json,
    }
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise BadRequestFile(path, f"not one of {', '.join(readers)}")
    try:
        content: Any = reader(path.read_text(encoding="utf-8-sig"))  # editors of Windows begin a file with a mark
    except OSError as error:
        raise UnreadableFile(path, error.strerror or str(error)) from error
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise BadRequestFile(path, f"not readable as {path.suffix[1:]}: {error}") from error
    return parse(content)


class _Loader(yaml.SafeLoader):
    """YAML as people write it: 3e-4 is a number, and no key is given twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.value != "<<"]
        _check_names(names)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def _yaml(text: str) -> Any:
    return yaml.load(text, _Loader)


def _json(text: str) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        _check_names([name for name, _ in pairs])
        return dict(pairs)

    return json.loads(text, object_pairs_hook=unique)


def _check_names(names: list[str]) -> None:
    """Raises ValueError."""
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if twice:
        raise ValueError(f"given twice: {', '.join(twice)}")


def parse(content: Any) -> ExperimentRequest:
    """Parse a request from plain values. Raises ConfigError for the rejected values."""
    try:
        return ExperimentRequest.model_validate(content)
    except ValidationError as error:
        raise_together([_refused(item) for item in error.errors(include_url=False)])
        raise  # a validation error has errors


def _refused(item: ErrorDetails) -> ConfigError:
    return ConfigError(".".join(map(str, item["loc"])) or "request", item["input"], item["msg"])
