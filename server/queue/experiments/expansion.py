"""From a request to its runs: axes, zips and exclusions give variants; repetitions and the seed give their order.

Pure: no database. What no worker could run is refused here, with a pointer to the field.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpt2core.spec.config import ModelConfig, TrainConfig
from gpt2core.spec.errors import ConfigError
from gpt2core.spec.schedulers import AUTO, RUNTIMES, scheduler
from gpt2core.step import slicing
from taskloom.contract.experiments import FEWEST_CALIBRATING_RUNS, RUNTIME, ExperimentRequest, runtime_label
from taskloom.server.errors import ExclusionTooLarge, ExpansionTooLarge, InvalidRequest
from taskloom.server.problems import pointer
from taskloom.server.queue.experiments.memory import MAX_SLICES, slices

SETTINGS = tuple(f.name for f in dataclasses.fields(TrainConfig))
MODEL_SETTINGS = tuple(f.name for f in dataclasses.fields(ModelConfig))
# Where files lie is the worker's operator's business; a request names them.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
MAX_ERRORS = 100
MOST_COMPARISONS = 500_000  # of combinations with exclusions
MOST_SETTINGS_BYTES = 16 << 20  # of all runs' configurations as JSON; 10,000 usual ones have 8 MB
MOST_SHAPES = 5000  # whose memory is planned: of more it would take more than 2 s of a core
# What two runs may differ in and still take as long per step.
NOT_SHAPE = (
    "steps", "warmup", "seed", "data", "distribution", "checkpoint", "save", "trace", "lr", "beta1", "beta2", "eps",
    "weight_decay", "cores",
)  # fmt: skip


@dataclass(frozen=True)
class Variant:
    """One combination of the axes' values: what varies, the whole configuration, and what it needs."""

    values: Mapping[str, Any]
    config: TrainConfig
    spec: Mapping[str, Any]  # the configuration as JSON
    shape: str  # equal for configurations whose steps take equally long on one node
    memory_bytes: int

    @property
    def runtime(self) -> str | None:
        """The OpenMP runtime that it needs of its node, if it needs one."""
        needed: str | None = scheduler(self.config.scheduler).runtime_of(self.config)
        return needed

    def cores_needed(self, asked: int | None) -> int:
        if asked is not None:
            return asked
        if self.config.cores is not None:
            return len(self.config.cores)
        return 1 if self.config.allow_oversubscription else self.config.threads


@dataclass(frozen=True)
class Planned:
    """A run to be: its place in the experiment's order. Runs of one block are paired. Repetitions count from 1."""

    position: int
    block: int
    repetition: int
    variant: int


@dataclass(frozen=True)
class Capacity:
    """The largest of what the known nodes have; None: no node is known."""

    cores: int | None = None
    memory_bytes: int | None = None
    runtimes: frozenset[str] | None = None  # labels of OpenMP runtimes that some node has


def canonical_sha256(value: object) -> str:
    """SHA-256 of a JSON value, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _shape(spec: Mapping[str, Any]) -> str:
    return canonical_sha256({name: value for name, value in spec.items() if name not in NOT_SHAPE})


class Refusals:
    """Errors gathered over all variants, each named once."""

    def __init__(self, request: ExperimentRequest) -> None:
        self._request = request
        self._entries: dict[tuple[str, str], dict[str, Any]] = {}
        self._places: dict[str, dict[str, int]] = {}

    def add(self, where: str, field: str, value: object, accepted: str) -> None:
        """Raises InvalidRequest once there are enough of them."""
        entry = {"pointer": where, "field": field, "value": value, "accepted": accepted}
        self._entries.setdefault((where, accepted), entry)
        if len(self._entries) >= MAX_ERRORS:
            self.raise_if_any()

    def add_setting(self, choice: Mapping[str, Any], error: ConfigError) -> None:
        """A refused setting of a variant, at the axis, zip or base that gave it."""
        name, _, inner = error.field.partition(".")
        if name not in SETTINGS and name in MODEL_SETTINGS:
            name, inner = "model", name
        self.add(self.where(name, choice) + (f"/{inner}" if inner else ""), error.field, error.value, error.accepted)

    def where(self, name: str, choice: Mapping[str, Any]) -> str:
        if name in self._request.axes:
            return pointer(["axes", name, self._place(name, self._request.axes[name], choice[name])])
        for i, group in enumerate(self._request.zip):
            if name in group:
                return pointer(["zip", i, name, self._place(name, group[name], choice[name])])
        return pointer(["base", name])

    def _place(self, name: str, values: list[Any], value: object) -> int:
        """Where a setting's values hold this one first."""
        if name not in self._places:
            self._places[name] = {_text(values[i]): i for i in range(len(values) - 1, -1, -1)}
        return self._places[name][_text(value)]

    def raise_if_any(self) -> None:
        if self._entries:
            raise InvalidRequest(list(self._entries.values()))


def _text(value: object) -> str:
    """Equal for values that are equal as JSON: true is not 1."""
    return json.dumps(value, sort_keys=True)


class Exclusions:
    """Combinations to leave out, found by their values: however many leave out values of the same settings, a
    combination is looked up once.
    """

    def __init__(self, entries: Sequence[Mapping[str, Any]]) -> None:
        self._known: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
        for entry in entries:
            names = tuple(sorted(entry))
            self._known.setdefault(names, set()).add(tuple(_text(entry[name]) for name in names))

    def __len__(self) -> int:
        """Comparisons that a combination takes."""
        return len(self._known)

    def take(self, texts: Mapping[str, str]) -> bool:
        """Whether the combination, as the text of each setting, is left out."""
        return any(tuple(texts[name] for name in names) in values for names, values in self._known.items())


def expand(
    request: ExperimentRequest,
    max_runs: int,
    memory_bytes: Callable[[TrainConfig], int],
    capacity: Capacity,
    between: Callable[[], None] = lambda: None,
) -> tuple[list[Variant], list[Planned]]:
    """Every variant, and every run in its order. `between`: called before each variant; what it raises ends the work.

    Raises InvalidRequest, ExpansionTooLarge or ExclusionTooLarge.
    """
    refusals = Refusals(request)
    _check_axes(request, refusals)
    _check_stop(request, refusals)
    _check_calibration(request, refusals)
    if len(set(request.builds)) != len(request.builds):
        refusals.add("/builds", "builds", request.builds, "builds without repeats")
    refusals.raise_if_any()
    combinations = len(request.builds) or 1
    for values in (*request.axes.values(), *(next(iter(group.values())) for group in request.zip)):
        combinations *= len(values)
    if combinations > max_runs:
        _refuse_size(combinations, max_runs)
    exclusions = Exclusions(request.exclude)
    if combinations * len(exclusions) > MOST_COMPARISONS:
        raise ExclusionTooLarge(
            f"{combinations} combinations would be compared with {len(exclusions)} sets of excluded settings; at most "
            f"{MOST_COMPARISONS} comparisons are made",
            combinations=combinations,
            max_comparisons=MOST_COMPARISONS,
        )
    repetitions = request.repetitions if request.stop is None else request.stop.max_repetitions
    variants: list[Variant] = []
    size_bytes = 0
    for variant, spec_bytes in _variants(request, exclusions, refusals, memory_bytes, capacity):
        between()
        variants.append(variant)
        size_bytes += repetitions * spec_bytes
        if size_bytes > MOST_SETTINGS_BYTES:
            raise ExpansionTooLarge(
                f"the runs' settings have more than {MOST_SETTINGS_BYTES} bytes", max_bytes=MOST_SETTINGS_BYTES
            )
    refusals.raise_if_any()
    if not variants:
        refusals.add("/exclude", "exclude", request.exclude, "entries that leave at least one combination")
        refusals.raise_if_any()
    variants = _of_builds(_sliced_alike(variants), request.builds)
    if len(variants) * repetitions > max_runs:
        _refuse_size(len(variants) * repetitions, max_runs)
    return variants, order(request, len(variants))


def _of_builds(variants: list[Variant], builds: Sequence[str]) -> list[Variant]:
    """Each variant, to be run by each build."""
    if not builds:
        return variants
    return [
        dataclasses.replace(variant, values={**variant.values, "build": build})
        for variant in variants
        for build in builds
    ]


def _sliced_alike(variants: list[Variant]) -> list[Variant]:
    """Slices that are chosen automatically are everywhere those of the widest team, so that numbers of threads are
    compared on the same tasks.
    """
    widest = max(variant.config.threads for variant in variants)
    alike = []
    for variant in variants:
        narrow = variant.config.threads != widest
        if narrow and (sizes := slicing.sizes(variant.config, widest)) != slicing.sizes(variant.config):
            config = dataclasses.replace(variant.config, batch_slice=sizes[0], token_slice=sizes[1])
            spec = config.to_dict()
            variant = dataclasses.replace(variant, config=config, spec=spec, shape=_shape(spec))
        alike.append(variant)
    return alike


def _check_stop(request: ExperimentRequest, refusals: Refusals) -> None:
    if request.stop is None:
        return
    if request.order != "interleaved":
        refusals.add("/order", "order", request.order, "interleaved: repetitions are added a block at a time")
    if request.stop.max_repetitions < request.repetitions:
        refusals.add(
            "/stop/max_repetitions",
            "max_repetitions",
            request.stop.max_repetitions,
            f"at least repetitions ({request.repetitions})",
        )


def _check_calibration(request: ExperimentRequest, refusals: Refusals) -> None:
    if not request.calibrates:
        return
    for name, given in (("axes", request.axes), ("zip", request.zip), ("builds", request.builds)):
        if given:
            refusals.add(f"/{name}", name, given, "nothing: all runs of a calibration are alike")
    if request.repetitions < FEWEST_CALIBRATING_RUNS:
        accepted = f"at least {FEWEST_CALIBRATING_RUNS}: pairs of runs"
        refusals.add("/repetitions", "repetitions", request.repetitions, accepted)


def _refuse_size(runs: int, max_runs: int) -> None:
    raise ExpansionTooLarge(f"{runs} runs; at most {max_runs} are taken", runs=runs, max_runs=max_runs)


def order(request: ExperimentRequest, variants: int) -> list[Planned]:
    """interleaved: a block per repetition, each variant once in it, shuffled by the seed. sequential: no blocks."""
    if request.order == "sequential":
        pairs = itertools.product(range(variants), range(request.repetitions))
        return [Planned(i, i, repetition + 1, variant) for i, (variant, repetition) in enumerate(pairs)]
    shuffler = random.Random(request.seed)
    planned: list[Planned] = []
    for block in range(request.repetitions):
        turn = list(range(variants))
        shuffler.shuffle(turn)
        planned.extend(Planned(block * variants + i, block, block + 1, variant) for i, variant in enumerate(turn))
    return planned


def _check_axes(request: ExperimentRequest, refusals: Refusals) -> None:
    known = "no such setting; known: " + ", ".join(SETTINGS)
    seen: set[str] = set()
    named: list[tuple[list[str | int], str, list[Any]]] = []
    for name, values in request.axes.items():
        named.append((["axes", name], name, values))
    for i, group in enumerate(request.zip):
        named.extend((["zip", i, name], name, values) for name, values in group.items())
        if len({len(values) for values in group.values()}) != 1:
            refusals.add(pointer(["zip", i]), "zip", group, "one or more settings with equally many values")
    for parts, name, values in named:
        where = pointer(parts)
        if name not in SETTINGS:
            refusals.add(where, name, values, known)
        if name in seen:
            refusals.add(where, name, values, "a setting varies in one place only")
        if not values:
            refusals.add(where, name, values, "at least one value")
        elif parts[0] == "axes" and len({json.dumps(v, sort_keys=True) for v in values}) != len(values):
            refusals.add(where, name, values, "values without repeats")
        seen.add(name)
    for i, entry in enumerate(request.exclude):
        if not entry:
            refusals.add(pointer(["exclude", i]), "exclude", entry, "at least one setting")
        for name in entry:
            if name not in SETTINGS:
                refusals.add(pointer(["exclude", i, name]), name, entry[name], known)


def _variants(
    request: ExperimentRequest,
    exclusions: Exclusions,
    refusals: Refusals,
    memory_bytes: Callable[[TrainConfig], int],
    capacity: Capacity,
) -> Iterator[tuple[Variant, int]]:
    """Each variant, and the length of its configuration as JSON."""
    base = request.base.model_dump(exclude_unset=True, exclude_none=True)
    base = {name: list(v) if isinstance(v, tuple) else v for name, v in base.items()}
    defaults = TrainConfig().to_dict() | {"model": TrainConfig().model.name}
    fixed = {name: _text(value) for name, value in {**defaults, **base}.items()}
    groups = [{name: values} for name, values in request.axes.items()] + request.zip
    parts = [_rows(group, with_texts=bool(len(exclusions))) for group in groups]
    seen: set[str] = set()
    known_bytes: dict[str, int] = {}
    for combination in itertools.product(*parts):
        choice = {name: value for row, _ in combination for name, value in row.items()}
        if exclusions.take(fixed | {name: text for _, texts in combination for name, text in texts.items()}):
            continue
        try:
            config = TrainConfig.from_dict({**base, **choice})
        except ConfigError as error:
            refusals.add_setting(choice, error)
            continue
        spec = config.to_dict()
        identity = _text(spec)
        if identity in seen:
            refusals.add("/axes", "axes", choice, "combinations that differ from each other")
            continue
        seen.add(identity)
        if slices(config) > MAX_SLICES:
            name = "batch_slice" if config.batch_slice else "token_slice"
            refusals.add(
                refusals.where(name, choice),
                name,
                getattr(config, name),
                f"slices that cut the batch into at most {MAX_SLICES} pieces",
            )
            continue
        shape = _shape(spec)
        if shape not in known_bytes:
            if len(known_bytes) == MOST_SHAPES:
                told = f"more than {MOST_SHAPES} configurations whose steps differ in size or order"
                raise ExpansionTooLarge(told, max_shapes=MOST_SHAPES)
            known_bytes[shape] = memory_bytes(config)
        variant = Variant(choice, config, spec, shape, known_bytes[shape])
        _check_runnable(variant, request, refusals, capacity)
        yield variant, len(identity)


def _rows(group: Mapping[str, list[Any]], with_texts: bool) -> list[tuple[dict[str, Any], dict[str, str]]]:
    """Settings that vary together: the values of each row, and their texts."""
    rows = [dict(zip(group, row, strict=True)) for row in zip(*group.values(), strict=True)]
    return [(row, {name: _text(value) for name, value in row.items()} if with_texts else {}) for row in rows]


def _check_runnable(variant: Variant, request: ExperimentRequest, refusals: Refusals, capacity: Capacity) -> None:
    """Refuse what no worker could run, or should be asked to open."""
    config, asked = variant.config, request.requires

    def refuse(name: str, value: object, accepted: str) -> None:
        refusals.add(refusals.where(name, variant.values), name, value, accepted)

    for name in ("data", "checkpoint"):
        value = getattr(config, name)
        if value is not None and not NAME.fullmatch(value):
            refuse(name, value, "a name that workers map to a file; no path")
    if "/" in config.runtime:
        refuse("runtime", config.runtime, "one of " + ", ".join((AUTO, *RUNTIMES)) + "; no path")
    for name in ("save", "trace"):
        if getattr(config, name) is not None:
            refuse(name, getattr(config, name), "nothing: a submitted run writes no file of its own")
    cores_needed = variant.cores_needed(asked.cores)
    if not config.allow_oversubscription and asked.cores is not None and config.threads > asked.cores:
        refuse("threads", config.threads, f"at most the cores asked for (requires.cores = {asked.cores})")
    if config.cores is not None and asked.cores is not None and len(config.cores) > asked.cores:
        refuse("cores", list(config.cores), f"at most as many as asked for (requires.cores = {asked.cores})")
    if capacity.cores is not None and cores_needed > capacity.cores:
        if asked.cores is None:
            name = "threads" if config.cores is None else "cores"
            refuse(name, cores_needed, f"at most the cores of the largest known node ({capacity.cores})")
        else:
            refusals.add(
                "/requires/cores",
                "cores",
                asked.cores,
                f"at most the cores of the largest known node ({capacity.cores})",
            )
    needed = variant.runtime
    if needed is not None and capacity.runtimes is not None and runtime_label(needed) not in capacity.runtimes:
        found = ", ".join(sorted(label.removeprefix(RUNTIME) for label in capacity.runtimes)) or "none"
        refuse("runtime", needed, f"an OpenMP runtime that a known node has: {found}")
    if capacity.memory_bytes is not None and variant.memory_bytes > capacity.memory_bytes:
        refuse(
            "model",
            variant.memory_bytes,
            f"arenas of at most the memory of the largest known node ({capacity.memory_bytes} bytes); "
            f"this one needs {variant.memory_bytes} bytes",
        )
    if asked.memory_bytes is not None and variant.memory_bytes > asked.memory_bytes:
        refuse(
            "model",
            variant.memory_bytes,
            f"arenas of at most the memory asked for (requires.memory_bytes = {asked.memory_bytes}); "
            f"this one needs {variant.memory_bytes} bytes",
        )
    if (
        asked.memory_bytes is not None
        and capacity.memory_bytes is not None
        and asked.memory_bytes > capacity.memory_bytes
    ):
        refusals.add(
            "/requires/memory_bytes",
            "memory_bytes",
            asked.memory_bytes,
            f"at most the memory of the largest known node ({capacity.memory_bytes} bytes)",
        )
