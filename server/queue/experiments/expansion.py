"""Expands a request to its runs. Axes, zips and exclusions give the variants; repetitions and the seed give the order.

No database is used. Runs that no worker could execute are rejected here, with a pointer to the field.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import ConfigError
from gpt2core.step import slicing
from taskloom.contract.experiments import ExperimentRequest
from taskloom.server.errors import ExclusionTooLarge, ExpansionTooLarge
from taskloom.server.queue.experiments import primary
from taskloom.server.queue.experiments.canonical import key, text
from taskloom.server.queue.experiments.checks import check_request, check_runnable
from taskloom.server.queue.experiments.exclusions import Exclusions
from taskloom.server.queue.experiments.memory import MAX_SLICES, slices
from taskloom.server.queue.experiments.refusals import Refusals
from taskloom.server.queue.experiments.variants import Planned, Variant, shape_of, shaping
from taskloom.server.queue.workers.capacity import Capacity

Enough = Callable[[ExperimentRequest, Sequence[Variant]], int]
MOST_COMPARISONS = 500_000  # of combinations with exclusions
MOST_SETTINGS_BYTES = 16 << 20  # of all runs' configurations as JSON; 10,000 typical ones have 8 MB
EVERY = 50  # combinations between two calls of `between`
MOST_SHAPES = 5000  # distinct shapes; planning the memory of more would take over 2 s of a core


def one(_request: ExperimentRequest, _variants: Sequence[Variant]) -> int:
    """A single repetition."""
    return 1


def expand(
    request: ExperimentRequest,
    max_runs: int,
    memory_bytes: Callable[[TrainConfig], int],
    capacity: Capacity,
    between: Callable[[], None] = lambda: None,
    enough: Enough = one,
) -> tuple[list[Variant], list[Planned]]:
    """Every variant, and every run in order. `between` is called every EVERY combinations and may raise to stop.
    `enough` chooses the number of repetitions if the request does not.

    Raises InvalidRequest, ExpansionTooLarge or ExclusionTooLarge.
    """
    refusals = Refusals(request)
    check_request(request, refusals)
    combinations = len(request.builds) or 1
    for values in (*request.axes.values(), *(next(iter(group.values())) for group in request.zip)):
        combinations *= len(values)
    repetitions = (request.repetitions or 1) if request.stop is None else request.stop.max_repetitions
    runs = combinations if request.exclude else combinations * repetitions  # what exclusions leave is known later
    if runs > max_runs:
        _refuse_size(runs, max_runs)
    exclusions = Exclusions(request.exclude)
    if combinations * len(exclusions) > MOST_COMPARISONS:
        raise ExclusionTooLarge(
            f"{combinations} combinations would be compared with {len(exclusions)} sets of excluded settings; at most "
            f"{MOST_COMPARISONS} comparisons are made",
            combinations=combinations,
            max_comparisons=MOST_COMPARISONS,
        )
    variants: list[Variant] = []
    size_bytes = 0
    for variant, spec_bytes in _variants(request, exclusions, refusals, memory_bytes, capacity, between):
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
    primary.check(request, variants, refusals)
    refusals.raise_if_any()
    if request.repetitions is None:
        request = request.model_copy(update={"repetitions": enough(request, variants)})
        repetitions = max(repetitions, request.repetitions or 1)
    if len(variants) * repetitions > max_runs:
        _refuse_size(len(variants) * repetitions, max_runs)
    return variants, order(request, len(variants))


def _of_builds(variants: list[Variant], builds: Sequence[str]) -> list[Variant]:
    """Each variant for each build."""
    if not builds:
        return variants
    return [
        dataclasses.replace(variant, values={**variant.values, "build": build})
        for variant in variants
        for build in builds
    ]


def _sliced_alike(variants: list[Variant]) -> list[Variant]:
    """Use the automatic slices of the widest team for all thread counts, so that they are compared on the same tasks.
    """
    widest = max(variant.config.threads for variant in variants)
    alike = []
    for variant in variants:
        narrow = variant.config.threads != widest
        if narrow and (sizes := slicing.sizes(variant.config, widest)) != slicing.sizes(variant.config):
            config = dataclasses.replace(variant.config, batch_slice=sizes[0], token_slice=sizes[1])
            spec = config.to_dict()
            variant = dataclasses.replace(variant, config=config, spec=spec, shape=shape_of(spec, variant.nodes))
        alike.append(variant)
    return alike


def _refuse_size(runs: int, max_runs: int) -> None:
    raise ExpansionTooLarge(f"the experiment has {runs} runs; the limit is {max_runs}", runs=runs, max_runs=max_runs)


def order(request: ExperimentRequest, variants: int) -> list[Planned]:
    """The runs in order. interleaved: each repetition is a block, with each variant once, shuffled by the seed. Every
    second block has the reverse order of the one before, so that of any two variants each runs first equally often.
    sequential: variant by variant, and each run is a block of its own."""
    if request.order == "sequential":
        pairs = itertools.product(range(variants), range(request.repetitions or 1))
        return [Planned(i, i, repetition + 1, variant) for i, (variant, repetition) in enumerate(pairs)]
    shuffler = random.Random(request.seed)
    planned: list[Planned] = []
    turn = list(range(variants))
    for block in range(request.repetitions or 1):
        if block % 2:
            turn.reverse()
        else:
            shuffler.shuffle(turn)
        planned.extend(Planned(block * variants + i, block, block + 1, variant) for i, variant in enumerate(turn))
    return planned


def _variants(
    request: ExperimentRequest,
    exclusions: Exclusions,
    refusals: Refusals,
    memory_bytes: Callable[[TrainConfig], int],
    capacity: Capacity,
    between: Callable[[], None],
) -> Iterator[tuple[Variant, int]]:
    """Each variant, and the length of its configuration as JSON."""
    base = request.base.model_dump(exclude_unset=True, exclude_none=True)
    base = {name: list(v) if isinstance(v, tuple) else v for name, v in base.items()}
    fixed: dict[str, str] = {}
    if exclusions:
        defaults = TrainConfig().to_dict() | {"model": TrainConfig().model.name}
        fixed = {name: text(value) for name, value in {**defaults, **base}.items()}
    groups = [{name: values} for name, values in request.axes.items()] + request.zip
    parts = [_rows(group, with_texts=bool(exclusions)) for group in groups]
    seen: set[bytes] = set()
    known: dict[bytes, tuple[str, int]] = {}  # shape and memory
    nodes = request.requires.nodes or 1
    for place, combination in enumerate(itertools.product(*parts)):
        if place % EVERY == 0:
            between()
        choice = {name: value for row, _ in combination for name, value in row.items()}
        if exclusions and exclusions.take(fixed | {name: of for _, texts in combination for name, of in texts.items()}):
            continue
        try:
            config = TrainConfig.from_dict({**base, **choice})
        except ConfigError as error:
            for each in (error, *error.others):
                refusals.add_setting(choice, each)
            continue
        spec = config.to_dict()
        identity = key(spec)
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
        step = key(shaping(spec))
        if step not in known:
            if len(known) == MOST_SHAPES:
                message = f"more than {MOST_SHAPES} configurations whose steps differ in size or order"
                raise ExpansionTooLarge(message, max_shapes=MOST_SHAPES)
            known[step] = shape_of(spec, nodes), memory_bytes(config) // nodes
        variant = Variant(choice, config, spec, *known[step], nodes)
        check_runnable(variant, request, refusals, capacity)
        yield variant, len(identity)


def _rows(group: Mapping[str, list[Any]], with_texts: bool) -> list[tuple[dict[str, Any], dict[str, str]]]:
    """Settings that vary together: the values of each row, and their texts."""
    rows = [dict(zip(group, row, strict=True)) for row in zip(*group.values(), strict=True)]
    return [(row, {name: text(value) for name, value in row.items()} if with_texts else {}) for row in rows]
