"""Agreement of results: a speedup is shown only between results of the same computation.

With equal slices, losses and final weights are bit-identical under every scheduler and thread count; of inference, the
outputs. Other slices, another processor or another BLAS round differently: then losses agree within LOSS_TOLERANCE, and
outputs within OUTPUT_TOLERANCE of each row's norm.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpt2core.spec.modes import UNREAD
from gpt2core.spec.roles import PROBLEM, with_role
from taskloom.analysis.fingerprint import ROUNDING, differing
from taskloom.analysis.processes import Facts, Process

LOSS_TOLERANCE = 1e-4  # relative, of each step's loss
OUTPUT_TOLERANCE = 1e-4  # root mean square of the rows' differences, each relative to the row's norm
SLICES = with_role("slices")
COMPARED = with_role("order", "slices")  # settings whose values experiments compare; a side has one value of each


@dataclass(frozen=True)
class Agreement:
    """Whether two results come from the same computation; `exact`: bit-identity was required."""

    holds: bool
    exact: bool
    reason: str


def rounding_key(facts: Facts) -> str:
    """A key that is equal for processes whose results must be bit-identical."""
    return facts.once(_rounding_key)


def _rounding_key(facts: Facts) -> str:
    config = {name: facts.config.get(name) for name in (*PROBLEM, *SLICES)}
    environment = {name: facts.environment.get(name) for name in ROUNDING}
    return json.dumps([config, environment], sort_keys=True)


def agree(a: Process, b: Process) -> Agreement:
    """Compare losses step by step, and final weights or the last outputs if both took the same number of steps."""
    if a.facts is b.facts or (digest(a.facts) == digest(b.facts) and a.config == b.config):
        return Agreement(True, True, "bit-identical")
    modes = {process.config.get("mode", "train") for process in (a, b)}
    unread = {name for mode in modes for name in UNREAD[mode]} if len(modes) > 1 else set()
    other_problem = differing([a.config, b.config], [name for name in PROBLEM if name not in unread])
    if other_problem:
        return Agreement(False, False, "the runs compute different problems: " + "; ".join(other_problem))
    exact = not differing([a.config, b.config], SLICES) and not differing([a.environment, b.environment], ROUNDING)
    for step, (left, right) in enumerate(zip(a.losses, b.losses, strict=False)):
        if left != right if exact else abs(left - right) > LOSS_TOLERANCE * max(abs(left), abs(right)):
            required = "bit-identical with equal slices" if exact else f"within {LOSS_TOLERANCE:g} relative"
            return Agreement(
                False,
                exact,
                f"their losses disagree from step {step} on: {left!r} of run {a.run_id}, {right!r} of run {b.run_id}; "
                f"they must be {required}",
            )
    if len(a.result["step_s"]) == len(b.result["step_s"]):
        if exact and a.weights_sha256 != b.weights_sha256:
            return Agreement(
                False, True, f"the final weights of runs {a.run_id} and {b.run_id} differ, with equal slices and losses"
            )
        if exact and a.facts.outputs_sha256 != b.facts.outputs_sha256:
            return Agreement(False, True, f"the outputs of runs {a.run_id} and {b.run_id} differ, with equal slices")
        apart = distance(a.facts.outputs_sketch, b.facts.outputs_sketch)
        if apart > OUTPUT_TOLERANCE:
            return Agreement(
                False,
                exact,
                f"the outputs of runs {a.run_id} and {b.run_id} differ by about {apart:.2g} of each row's norm; "
                f"they must be within {OUTPUT_TOLERANCE:g}",
            )
    return Agreement(True, exact, "bit-identical" if exact else _within(a))


def _within(process: Process) -> str:
    """Description of results that agree within a tolerance."""
    found = [f"losses within {LOSS_TOLERANCE:g} relative"] if process.losses else []
    found += [f"outputs within {OUTPUT_TOLERANCE:g} of each row's norm"] if process.facts.outputs_sketch else []
    return " and ".join(found)


def distance(a: Sequence[float], b: Sequence[float]) -> float:
    """Estimate of the rows' root mean square difference, relative to their norms, from two sketches
    (gpt2core/run/outputs.py)."""
    squares = [(left - right) ** 2 for left, right in zip(a, b, strict=True)]
    return math.sqrt(math.fsum(squares) / len(squares)) if squares else 0.0


def digest(facts: Facts) -> tuple[tuple[float, ...], str, str]:
    """Settings that must be equal for bit-identical results."""
    return facts.once(_digest)


def _digest(facts: Facts) -> tuple[tuple[float, ...], str, str]:
    return tuple(facts.losses), facts.weights_sha256, facts.outputs_sha256


def first_disagreement(a: Sequence[Process], b: Sequence[Process]) -> Agreement:
    """The first disagreement, or the agreement between the sides.

    Each process is compared with the first of its side, and the sides' first processes with each other.
    """
    pairs = [*((side[0], other) for side in (a, b) for other in side[1:]), (a[0], b[0])]
    agreement = agree(*pairs[0])
    for left, right in pairs[1:]:
        if not agreement.holds:
            break
        agreement = agree(left, right)
    return agreement


def without(config: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key not in names}
