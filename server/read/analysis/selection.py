"""Selections of runs: `12,13,14`, or `experiment_id=7,scheduler=task,threads=2`."""

from __future__ import annotations

import dataclasses
import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpt2core.spec.config import NAMES, wrong
from gpt2core.spec.errors import ConfigError
from gpt2core.spec.fields import parse_cores
from gpt2core.spec.models import preset_name
from taskloom.contract.bodies import MOST_ID
from taskloom.server.errors import InvalidRequest

MAX_RUN_IDS = 1000
PLACES = ("repetition", "block")
SYNTAX = "run ids such as 12,13, or experiment_id=ID with settings, such as experiment_id=7,scheduler=task,threads=2"


@dataclass(frozen=True)
class Selection:
    """Run ids, or an experiment's runs with given settings."""

    run_ids: tuple[int, ...] = ()
    experiment_id: int | None = None
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def takes(self, spec: Mapping[str, Any], repetition: int, block: int) -> bool:
        """Whether a run of the experiment is selected."""
        known = {**spec, "repetition": repetition, "block": block}
        return all(_matches(name, known[name], value) for name, value in self.settings.items())


def parse(text: str, parameter: str) -> Selection:
    """Parse a selection. Raises InvalidRequest, which names the query parameter."""

    def refuse(accepted: str) -> InvalidRequest:
        entry = {"pointer": f"#query/{parameter}", "field": parameter, "value": text, "accepted": accepted}
        return InvalidRequest([entry])

    parts = [part.strip() for part in text.split(",")]
    if "=" not in text:
        if len(parts) > MAX_RUN_IDS or not all(_is_id(part) for part in parts):
            raise refuse(SYNTAX)
        return Selection(run_ids=tuple(dict.fromkeys(int(part) for part in parts)))
    settings: dict[str, Any] = {}
    for part in parts:
        name, equals, value = part.partition("=")
        if not equals or name in settings:
            raise refuse(SYNTAX)
        if name not in (*NAMES, *PLACES, "experiment_id"):
            names = ("experiment_id", *PLACES, *NAMES)
            close = difflib.get_close_matches(name, names, 1)
            meant = f" (did you mean {close[0]!r}?)" if close else ""
            raise refuse(f"there is no setting {name!r}{meant}; settings are " + ", ".join(names))
        settings[name] = value if name in ("cores", "experiment_id") else value_of(value)
    experiment_id = settings.pop("experiment_id", "")
    if not _is_id(experiment_id):
        raise refuse(SYNTAX)
    if "cores" in settings:
        try:
            settings["cores"] = list(parse_cores(settings["cores"]))
        except ConfigError as error:
            raise refuse(f"cores as a range: {error.accepted}") from None
    for name in settings.keys() - {*PLACES, "model"}:  # models of other packages may be gone
        if errors := wrong(name, settings[name]):
            raise refuse(f"{name}: {errors[0].accepted}")
    return Selection(experiment_id=int(experiment_id), settings=settings)


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 10 and int(text) <= MOST_ID


def value_of(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # invalid JSON, very long integers, very deep nesting
        return text


def _matches(name: str, actual: Any, expected: Any) -> bool:
    if name == "model" and isinstance(expected, str):
        return bool(actual["name"] == preset_name(expected))
    return bool(actual == expected and isinstance(actual, bool) == isinstance(expected, bool))
