"""Checks of a submission: empty or contradictory requests, and runs that no worker can execute."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel

from gpt2core.spec import data
from gpt2core.spec.config import NAMES
from gpt2core.spec.roles import PROBLEM, with_role
from gpt2core.spec.schedulers import AUTO, RUNTIMES
from gpt2core.spec.wording import enumerated
from taskloom.contract.experiments import FEWEST_CALIBRATING_RUNS, ExperimentRequest
from taskloom.contract.labels import NODES, RUNTIME, runtime_label
from taskloom.contract.settings import wrong_values
from taskloom.server.problems import pointer
from taskloom.server.queue.experiments.canonical import text
from taskloom.server.queue.experiments.refusals import Refusals
from taskloom.server.queue.experiments.variants import Variant
from taskloom.server.queue.workers.capacity import Capacity

# A request names files; the worker's operator configures their folders.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


TUNED = tuple(with_role("order", "slices"))  # settings that a space may have
MOST_VALUES = 500  # of a setting in a space


def check_request(request: ExperimentRequest, refusals: Refusals) -> None:
    """Check the parts of a request that do not depend on its variants. Raises InvalidRequest if there are no variants:
    other errors are answered together with those of the variants."""
    _check_axes(request, refusals)
    if request.workload is not None and request.template is None:
        refusals.add("/workload", "workload", request.workload.model_dump(exclude_unset=True), "only with template")
    if NODES in request.requires.labels:
        refusals.add("/requires/labels/nodes", NODES, request.requires.labels[NODES], "no label: it is requires.nodes")
    _check_settings(request, refusals)
    hopeless = bool(refusals)
    _check_stop(request, refusals)
    _check_tune(request, refusals)
    _check_calibration(request, refusals)
    if len(set(request.builds)) != len(request.builds):
        refusals.add("/builds", "builds", request.builds, "builds without repeats")
    if hopeless:
        refusals.raise_if_any()


def _check_axes(request: ExperimentRequest, refusals: Refusals) -> None:
    seen: set[str] = set()
    named: list[tuple[list[str | int], str, list[Any]]] = []
    for name, values in request.axes.items():
        named.append((["axes", name], name, values))
    for i, group in enumerate(request.zip):
        named.extend((["zip", i, name], name, values) for name, values in group.items())
        if len({len(values) for values in group.values()}) != 1:
            refusals.add(pointer(["zip", i]), "zip", group, "one or more settings, each with the same number of values")
    for parts, name, values in named:
        where = pointer(parts)
        if name in seen:
            refusals.add(where, name, values, "a setting varies in one place only")
        if not values:
            refusals.add(where, name, values, "at least one value")
        elif parts[0] == "axes" and len({text(v) for v in values}) != len(values):
            refusals.add(where, name, values, "values without repeats")
        seen.add(name)
    for i, entry in enumerate(request.exclude):
        if not entry:
            refusals.add(pointer(["exclude", i]), "exclude", entry, "at least one setting")
        for name in entry:
            if name not in NAMES:
                known = "no such setting; known: " + ", ".join(NAMES)
                refusals.add(pointer(["exclude", i, name]), name, entry[name], known)


def _check_settings(request: ExperimentRequest, refusals: Refusals) -> None:
    """Check each value by itself, so that one answer names all that no variant can have."""
    base = request.base.model_dump(exclude_unset=True)
    for place, error in wrong_values({"base": base, "axes": request.axes, "space": request.space, "zip": request.zip}):
        refusals.add(pointer(place), error.field, error.value, error.accepted)


def _check_stop(request: ExperimentRequest, refusals: Refusals) -> None:
    if request.stop is None:
        return
    if request.order != "interleaved":
        refusals.add("/order", "order", request.order, "interleaved: repetitions are added a block at a time")
    if request.repetitions is not None and request.stop.max_repetitions < request.repetitions:
        refusals.add(
            "/stop/max_repetitions",
            "max_repetitions",
            request.stop.max_repetitions,
            f"at least repetitions ({request.repetitions})",
        )


def _check_tune(request: ExperimentRequest, refusals: Refusals) -> None:
    """A tuning chooses its runs itself, in settings that do not change the problem."""
    if request.tune is None:
        if request.space:
            refusals.add("/space", "space", request.space, "only with tune")
        return
    if not request.space:
        refusals.add("/space", "space", request.space, "at least one setting with its values")
    others = {
        "axes": request.axes, "zip": request.zip, "builds": request.builds, "primary": request.primary,
        "repetitions": request.repetitions, "stop": request.stop, "calibrates": request.calibrates or None,
        "confirms": request.confirms,
    }  # fmt: skip
    for name, value in others.items():
        if value:
            shown = value.model_dump() if isinstance(value, BaseModel) else value
            refusals.add(f"/{name}", name, shown, "none: with tune the server chooses the runs")
    if request.order != "interleaved":
        refusals.add("/order", "order", request.order, "interleaved: a tuning compares the runs of a block")
    for name, values in request.space.items():
        where = pointer(["space", name])
        if name in NAMES and name not in TUNED:
            why = "it changes the problem" if name in PROBLEM else "experiments do not compare it"
            refusals.add(where, name, values, f"no setting of a space, since {why}; one of " + ", ".join(TUNED))
        if not 1 <= len(values) <= MOST_VALUES or len({text(v) for v in values}) != len(values):
            refusals.add(where, name, values, f"1 to {MOST_VALUES} values without repeats")


def _check_calibration(request: ExperimentRequest, refusals: Refusals) -> None:
    if not request.calibrates:
        return
    for name, given in (("axes", request.axes), ("zip", request.zip), ("builds", request.builds)):
        if given:
            refusals.add(f"/{name}", name, given, "none: all runs of a calibration are equal")
    if request.repetitions is not None and request.repetitions < FEWEST_CALIBRATING_RUNS:
        accepted = f"at least {FEWEST_CALIBRATING_RUNS}: pairs of runs"
        refusals.add("/repetitions", "repetitions", request.repetitions, accepted)


def check_runnable(variant: Variant, request: ExperimentRequest, refusals: Refusals, capacity: Capacity) -> None:
    """Reject a variant that no worker could run, or that names a file outside the operators' folders."""
    config, requires = variant.config, request.requires

    def refuse(name: str, value: object, accepted: str) -> None:
        refusals.add(refusals.where(name, variant.values), name, value, accepted)

    for name, value in (("data", data.parts(config.data)[1]), ("checkpoint", config.checkpoint)):
        if value is not None and not NAME.fullmatch(value):
            refuse(name, getattr(config, name), "a name that workers map to a file; no path")
    if "/" in config.runtime:
        refuse("runtime", config.runtime, "one of " + ", ".join((AUTO, *RUNTIMES)) + "; no path")
    for name in ("save", "trace"):
        if getattr(config, name) is not None:
            refuse(name, getattr(config, name), "none: a submitted run writes no file")
    cores_needed = variant.cores_needed(requires.cores)
    of_ranks = f" / ranks ({config.ranks})" if config.ranks > 1 else ""
    threads = config.total_threads // variant.nodes
    if not config.allow_oversubscription and requires.cores is not None and threads > requires.cores:
        refuse("threads", config.threads, f"at most the required cores (requires.cores = {requires.cores}){of_ranks}")
    if config.cores is not None and requires.cores is not None and len(config.cores) > requires.cores:
        refuse("cores", list(config.cores), f"at most as many as required (requires.cores = {requires.cores})")
    if capacity.cores is not None and cores_needed > capacity.cores:
        if requires.cores is None:
            name = "threads" if config.cores is None else "cores"
            refuse(name, cores_needed, f"at most the cores of the largest known node ({capacity.cores})")
        else:
            refusals.add(
                "/requires/cores",
                "cores",
                requires.cores,
                f"at most the cores of the largest known node ({capacity.cores})",
            )
    needed = variant.runtime
    if needed is not None and capacity.runtimes is not None and runtime_label(needed) not in capacity.runtimes:
        found = ", ".join(sorted(label.removeprefix(RUNTIME) for label in capacity.runtimes)) or "none"
        refuse("runtime", needed, f"an OpenMP runtime that a known node has: {found}")
    if variant.nodes > 1:
        _check_nodes(variant, capacity, refusals, refuse)
    elif config.ranks > 1 and capacity.mpi is False:
        refuse("ranks", config.ranks, "1, since no known node has an MPI library (taskloom[mpi])")
    if capacity.memory_bytes is not None and variant.memory_bytes > capacity.memory_bytes:
        refuse(
            "model",
            variant.memory_bytes,
            f"arenas of at most the memory of the largest known node ({capacity.memory_bytes} bytes); "
            f"this one needs {variant.memory_bytes} bytes",
        )
    if requires.memory_bytes is not None and variant.memory_bytes > requires.memory_bytes:
        refuse(
            "model",
            variant.memory_bytes,
            f"arenas of at most the required memory (requires.memory_bytes = {requires.memory_bytes}); "
            f"this one needs {variant.memory_bytes} bytes",
        )
    if (
        requires.memory_bytes is not None
        and capacity.memory_bytes is not None
        and requires.memory_bytes > capacity.memory_bytes
    ):
        refusals.add(
            "/requires/memory_bytes",
            "memory_bytes",
            requires.memory_bytes,
            f"at most the memory of the largest known node ({capacity.memory_bytes} bytes)",
        )


def _check_nodes(
    variant: Variant, capacity: Capacity, refusals: Refusals, refuse: Callable[[str, object, str], None]
) -> None:
    """Reject a variant whose ranks cannot be divided over the required nodes."""
    config, nodes = variant.config, variant.nodes
    if capacity.nodes is not None and str(nodes) not in capacity.nodes:
        known: list[str] = sorted(capacity.nodes, key=lambda number: (len(number), number))
        accepted = f"{enumerated(known)}, since no known worker or pool has {nodes} nodes"
        refusals.add("/requires/nodes", NODES, nodes, accepted)
    if config.ranks % nodes:
        refuse("ranks", config.ranks, f"a multiple of the required nodes (requires.nodes = {nodes})")
    if config.cores is not None:
        refuse("cores", list(config.cores), f"none with requires.nodes = {nodes}, since each node has its own cores")
    if config.allow_oversubscription:
        accepted = f"false with requires.nodes = {nodes}, since each rank gets cores of its own"
        refuse("allow_oversubscription", True, accepted)
