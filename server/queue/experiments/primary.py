"""The question of an experiment (`primary`): its sides as variants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from gpt2core.spec.config import NAMES
from gpt2core.spec.models import preset_name
from gpt2core.spec.roles import PROBLEM
from taskloom.contract.experiments import ExperimentRequest, Primary
from taskloom.server.problems import pointer
from taskloom.server.queue.experiments.canonical import text
from taskloom.server.queue.experiments.refusals import Refusals
from taskloom.server.queue.experiments.variants import Variant
from taskloom.server.queue.tables.experiments import Experiment
from taskloom.server.queue.tables.runs import Run

Described = tuple[Mapping[str, Any], Mapping[str, Any]]  # a variant's values on the axes, and its configuration as JSON


def check(request: ExperimentRequest, variants: Sequence[Variant], refusals: Refusals) -> None:
    """Reject a question whose sides are not one variant each, or compute different things."""
    if request.primary is None:
        return
    described = [(variant.values, variant.spec) for variant in variants]
    found = []
    for name, side in _named(request.primary):
        unknown = [key for key in side if key not in (*NAMES, "build")]
        for key in unknown:
            accepted = "no such setting; known: " + ", ".join(NAMES)
            refusals.add(pointer(["primary", name, key]), key, side[key], accepted)
        places = [] if unknown else _places(side, described)
        found.append(places)
        if not unknown and len(places) != 1:
            accepted = f"settings of exactly one variant; these are of {len(places)}. Variants differ in "
            refusals.add(f"/primary/{name}", f"primary.{name}", side, accepted + _differing(variants))
    if [len(places) for places in found] != [1, 1]:
        return
    a, b = (variants[place] for (place,) in found)
    if a is b:
        refusals.add("/primary/b", "primary.b", request.primary.b, "another variant than that of primary.a")
    elif other := [name for name in PROBLEM if a.spec.get(name) != b.spec.get(name)]:
        accepted = f"a variant that computes the same as that of primary.a; they differ in {', '.join(other)}"
        refusals.add("/primary/b", "primary.b", request.primary.b, accepted)


def sides(primary: Primary, described: Sequence[Described]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Values on the axes of the variants that a checked question names."""
    (a,), (b,) = (_places(side, described) for _, side in _named(primary))
    return described[a][0], described[b][0]


def of_experiment(session: Session, experiment: Experiment) -> tuple[Mapping[str, Any], Mapping[str, Any]] | None:
    """Sides of an experiment's question; None if it declares none."""
    declared = experiment.request.get("primary")
    if declared is None:
        return None
    first = select(Run.variant, Run.spec).where(Run.experiment_id == experiment.id, Run.repetition == 1)
    rows = [(variant, spec) for variant, spec in session.execute(first.order_by(Run.id))]
    return sides(Primary.model_validate(declared), rows)


def _named(primary: Primary) -> tuple[tuple[str, Mapping[str, Any]], ...]:
    return ("a", primary.a), ("b", primary.b)


def _places(side: Mapping[str, Any], described: Sequence[Described]) -> list[int]:
    """The variants with these settings, by their place."""
    return [
        place
        for place, (values, spec) in enumerate(described)
        if all(_equal(name, values[name] if name in values else spec.get(name), value) for name, value in side.items())
    ]


def _equal(name: str, actual: Any, expected: Any) -> bool:
    if name == "model" and isinstance(expected, str):
        known = actual["name"] if isinstance(actual, Mapping) and "name" in actual else actual
        return preset_name(str(known)) == preset_name(expected)
    return text(actual) == text(expected)


def _differing(variants: Sequence[Variant]) -> str:
    """Settings in which variants differ, with their values."""
    seen: dict[str, dict[str, None]] = {}
    for variant in variants:
        for name, value in variant.values.items():
            seen.setdefault(name, {})[value if isinstance(value, str) else text(value)] = None
    parts = [f"{name} ({', '.join(list(values)[:10])})" for name, values in seen.items() if len(values) > 1]
    return ", ".join(parts) or "nothing"
