"""Digest of a result, stored with it so that analyses need not read its payload."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gpt2core.spec.result import communication_per_step, energy_j, instructions_per_step, phase_medians_s, useful_s

MOMENTARY = frozenset({"load_average"})  # entries of the environment that differ in every run
FACTS = ("config", "losses")
EVIDENCE = ("weights_sha256", "outputs_sha256", "outputs_sketch")  # of agreement, as far as the mode has it
MEASURED = ("step_s", "canary", "latency", "goal", "time_to_first_token_s")
OF_OP = ("op", "phase", "calls", "time_s", "flop", "bytes")
OF_THREAD = ("useful_s", "starvation_s", "idle_s", "barrier_s")
OF_GRAPH = ("t1_s", "tinf_s", "fork_join_tinf_s")
OF_COUNTERS = ("instructions", "cycles", "cache_misses")


def lasting(environment: Mapping[str, Any]) -> dict[str, Any]:
    """An environment without entries that differ in every run."""
    return {name: value for name, value in environment.items() if name not in MOMENTARY}


def digest(result: Mapping[str, Any]) -> dict[str, bytes]:
    """The columns of a result's digest, each a part of it as JSON.

    Raises KeyError or ValueError for an incomplete result.
    """
    facts = {name: result[name] for name in FACTS}
    facts |= {name: result[name] for name in EVIDENCE if result.get(name)}
    facts |= {"environment": lasting(result["environment"])}
    measured = {name: result[name] for name in MEASURED if result.get(name)}
    measured |= {
        "flagged": result["flagged"] if any(result.get("flagged") or []) else [],
        "validity": {"foreign": (result.get("validity") or {}).get("foreign")},
        "instructions_per_step": instructions_per_step(result),
        "energy_j": energy_j(result)[0],
        "phase_medians_s": phase_medians_s(result),
    }
    causes = {
        "ops": [_only(op, OF_OP) for op in result.get("ops") or []],
        "threads": [_only(thread, OF_THREAD) for thread in result.get("threads") or []],
        "graph": _only(result.get("graph") or {}, OF_GRAPH),
        "counters": {
            "threads": [_only(t, OF_COUNTERS) for t in (result.get("counters") or {}).get("threads") or []],
            "unavailable": _only((result.get("counters") or {}).get("unavailable") or {}, OF_COUNTERS),
        },
        "memory_bytes": result.get("memory_bytes"),
        "resident_bytes": result.get("resident_bytes"),
        "compiled": result.get("compiled"),
        "communication_per_step": communication_per_step(result),
        "useful_s": useful_s(result) if result.get("communication") else None,
    }
    return {name: _packed(part) for name, part in (("facts", facts), ("measured", measured), ("causes", causes))}


def _only(found: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: found[name] for name in names if name in found}


def _packed(part: Mapping[str, Any]) -> bytes:
    return json.dumps(part, separators=(",", ":"), allow_nan=False).encode()
