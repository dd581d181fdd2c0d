"""Experiment files: TOML, YAML or JSON with the fields of an experiment request."""

from __future__ import annotations

import json
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
        ".yaml": yaml.safe_load,
        ".yml": yaml.safe_load,
        ".json": json.loads,
    }
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise BadRequestFile(path, f"not one of {', '.join(readers)}")
    try:
        content: Any = reader(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UnreadableFile(path, error.strerror or str(error)) from error
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise BadRequestFile(path, f"not readable as {path.suffix[1:]}: {error}") from error
    return parse(content)


def parse(content: Any) -> ExperimentRequest:
    """Parse a request from plain values. Raises ConfigError for the rejected values."""
    try:
        return ExperimentRequest.model_validate(content)
    except ValidationError as error:
        raise_together([_refused(item) for item in error.errors(include_url=False)])
        raise  # a validation error has errors


def _refused(item: ErrorDetails) -> ConfigError:
    return ConfigError(".".join(map(str, item["loc"])) or "request", item["input"], item["msg"])
