"""Runs of one series: those of one configuration on one machine, with any software."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from gpt2core.spec import networks
from gpt2core.spec.config import DEFAULTS
from gpt2core.spec.roles import declared, with_role

LATER_SETTINGS = {name: DEFAULTS[name] for name in declared("later")}  # values for results older than these settings
IN_FIRST_KEYS = declared("later", "in-keys")
NOT_SERIES = with_role("seed", "place", "length", "output")  # settings that may differ within a series
# Keys of a result's `environment`: those that identify a machine, and those that may change within a series.
MACHINE = ("node", "cpu_model", "machine", "cores_online", "smt", "governor", "turbo", "huge_pages", "clock")
SOFTWARE = ("kernel", "python", "numba", "llvmlite", "numba_settings", "numpy", "blas", "core_hash")
COMMIT = ("core_version", "core_commit", "core_branch", "core_dirty", "core_committed_at")  # of the trainer's sources


def without_new(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration without the settings that are newer than the first stored keys and at their default: as earlier
    workers know it, and as the keys of earlier series have it. A setting with another default for the network stays.
    """
    kept = {*IN_FIRST_KEYS, *networks.defaults_of(config.get("model"))}
    new = {name: value for name, value in LATER_SETTINGS.items() if name not in kept}
    return {name: value for name, value in config.items() if name not in new or value != new[name]}


def series_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a series has in common."""
    return {name: value for name, value in {**LATER_SETTINGS, **config}.items() if name not in NOT_SERIES}


def series_machine(environment: Mapping[str, Any]) -> dict[str, Any]:
    """The machine of a series, with the cores that its runs used, and the number of nodes of those on several."""
    several = ("nodes",) if "nodes" in environment else ()
    return {name: environment.get(name) for name in (*MACHINE, "cores", *several)}


def series_key(config: Mapping[str, Any], environment: Mapping[str, Any]) -> str:
    """SHA-256 that is equal for the runs of one series, also with results older than some settings."""
    text = json.dumps([without_new(series_config(config)), series_machine(environment)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
