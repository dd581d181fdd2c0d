"""Settings that a run had in the end, of those that the trainer chooses where the request leaves them open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from taskloom.contract.runs import Resolved

NAMES = tuple(Resolved.model_fields)
LONGEST = 255  # characters of the libraries' names


def of_result(result: Mapping[str, Any]) -> dict[str, Any]:
    """Value of each of NAMES, from a checked result. Libraries of products are those of its ops, without pieces."""
    libraries = {(op.get("blas") or "").partition("/")[0] for op in result["ops"]} - {""}
    chosen = {name: result["config"].get(name) for name in NAMES}
    return chosen | {"blas": " ".join(sorted(libraries))[:LONGEST] or None}


def agreed(runs: Sequence[Any]) -> dict[str, Any] | None:
    """The values in which all of these runs agree that have any, null where they differ. None: no run has any."""
    found = [run.resolved for run in runs if run.resolved is not None]
    alike = {name: {each.get(name) for each in found} for name in NAMES}
    return {name: values.pop() if len(values) == 1 else None for name, values in alike.items()} if found else None
