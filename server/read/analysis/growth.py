"""Memory of training beside inference for the model of an experiment."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

from gpt2core.networks.of_images import ImageModel
from gpt2core.spec import modes
from gpt2core.spec.config import DEFAULTS, TrainConfig
from gpt2core.spec.data import TOKENS
from gpt2core.spec.errors import ConfigError
from gpt2core.spec.models import model_from
from gpt2core.spec.phases import MODES
from taskloom.analysis.growth import DOUBLINGS, Growth, Peak, Shape, growth
from taskloom.analysis.memory import MemoryRow
from taskloom.analysis.variants import Group
from taskloom.server.queue.experiments.memory import arenas_bytes

MOST_BATCH = 1 << 20
ALIKE = ("precision", "optimizer", "logits")  # settings that a peak's run must share with the drawn configuration


def memory_growth(groups: Sequence[Group], rows: Sequence[MemoryRow]) -> list[Growth]:
    """Growth for the first variant's model, with the peaks of the variants that differ from it in the shape, in the
    schedule or in the mode. rows: of the groups. Runs that generate have one token of one sequence in a step, so they
    are left out, as are those of several ranks, and of other networks than the first."""
    every = zip((TrainConfig.from_dict(dict(group[0].config)) for group in groups), rows, strict=True)
    kept = [(config, row) for config, row in every if not config.generate and config.ranks == 1]
    if not kept:
        return []
    first = kept[0][0]
    kept = [(config, row) for config, row in kept if config.model.network == first.model.network]
    configs, rows = [config for config, _ in kept], [row for _, row in kept]
    shape = shape_of(first)
    of_mode = {mode: [c for c in configs if c.mode == mode and accepted(c, shape)] for mode in MODES}
    drawn = {mode: (found or [_in_mode(first, mode)])[0] for mode, found in of_mode.items()}

    @functools.cache
    def sizes(mode: str, shape: tuple[tuple[str, int], ...]) -> dict[str, int]:
        return arenas_bytes(_with_shape(drawn[mode], dict(shape)))

    peaks = [
        Peak(config.mode, shape_of(config), row.memory.peak_rss_bytes)
        for config, row in zip(configs, rows, strict=True)
        if row.memory.peak_rss_bytes and not row.memory.peak_compiled and _alike(config, drawn[config.mode])
        and all(accepted(each, shape_of(config)) for each in drawn.values())
    ]
    limits = {"batch": (1, MOST_BATCH), "seq": (first.model.shortest, first.model.context)}
    if isinstance(first.model, ImageModel):
        limits["side"] = first.model.sides
    return growth(
        shape,
        {axis: (limits[axis][0], min(largest(each, shape, axis, limits[axis][1]) for each in drawn.values()))
         for axis in shape},
        drawn["infer"].logits, lambda mode, shape: sizes(mode, tuple(shape.items())), peaks,
    )  # fmt: skip


def largest(config: TrainConfig, shape: Shape, axis: str, most: int) -> int:
    """The largest size of the drawn range that the trainer accepts, at most `most`."""
    size = shape[axis]
    for _ in range(DOUBLINGS):
        following = min(2 * size, most)
        if accepted(config, {**shape, axis: following}) is None:
            return size
        size = following
    return most


def shape_of(config: TrainConfig) -> Shape:
    """The sizes of a configuration on which its activations depend."""
    if isinstance(config.model, ImageModel):
        return {"batch": config.batch, "side": config.model.side}
    return {"batch": config.batch, "seq": config.seq}


def accepted(config: TrainConfig, shape: Shape) -> TrainConfig | None:
    """The configuration with another shape; None if the trainer refuses it, such as blocks of units of many times."""
    try:
        return _with_shape(config, shape)
    except ConfigError:
        return None


def _with_shape(config: TrainConfig, shape: Shape) -> TrainConfig:
    batch, seq = shape["batch"], shape.get("seq", config.seq)
    change: dict[str, Any] = {"batch": batch, "seq": seq}
    for name, most in (("batch_slice", batch), ("token_slice", seq)):
        given = getattr(config, name)
        change[name] = given and min(given, most)
    if "side" in shape:  # files have images of one side; arenas do not depend on the data
        change["model"] = model_from({**config.model.to_dict(), "side": shape["side"]})
        change |= {"data": "synthetic", "split": None, "val_samples": 1 if config.evaluate_every else None}
    return dataclasses.replace(config, **change)


def _in_mode(config: TrainConfig, mode: str) -> TrainConfig:
    """The configuration as it would run in another mode, by default: training fuses all, inference of tokens keeps the
    last logits."""
    found = modes.in_mode(dataclasses.replace(config, fusion=None), mode, DEFAULTS)
    if mode == "infer" and config.model.reads == TOKENS:
        found = dataclasses.replace(found, logits="last")
    return found


def _alike(config: TrainConfig, drawn: TrainConfig) -> bool:
    """Whether the run's arenas are those of the drawn configuration at the run's own shape, but for its schedule."""
    mine = accepted(config, shape_of(drawn))
    if mine is None or any(getattr(config, name) != getattr(drawn, name) for name in ALIKE):
        return False
    return {**mine.model.to_dict(), "name": ""} == {**drawn.model.to_dict(), "name": ""}  # one may be a preset
