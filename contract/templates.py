"""Templates: requests that are named instead of written. A template fills the fields that a request leaves out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from gpt2core.spec import modes
from gpt2core.spec.config import DEFAULTS, TrainConfig
from gpt2core.spec.data import CLOZE, IMAGES, PAIRS, TOKENS
from gpt2core.spec.errors import ConfigError
from gpt2core.spec.models import preset_name
from taskloom.contract.bodies import Model, Request

Mode = Literal["train", "infer"]
WORKLOAD = "workload"
GENERATED = "synthetic"  # data that the trainer generates
NETWORKS = ("small", "lstm-tiny", "resnet14-cifar", "vgg11-cifar", "seq2seq-tiny", "reader-tiny")
MOST_NETWORKS = 20
ROW = ("model", "batch", "seq", "mode", "data")  # settings that vary from network to network


def _settings(value: Any) -> Any:
    """A model's name as settings."""
    return {"model": value} if isinstance(value, str) else value


def _accepted(value: dict[str, Any]) -> dict[str, Any]:
    """Raises PydanticCustomError for settings that no training run accepts."""
    if "model" not in value:
        raise PydanticCustomError("setting", "a model's name, or settings with `model`")
    chosen = [name for name in ("scheduler", "threads", "mode") if name in value]
    if chosen:
        raise PydanticCustomError("setting", f"settings of a network alone, without {chosen[0]}")
    try:
        TrainConfig.from_dict(value)
    except ConfigError as error:
        raise PydanticCustomError("setting", "{message}", {"message": f"{error.field}: {error.accepted}"}) from None
    return value


Network = Annotated[
    dict[str, Any],
    BeforeValidator(_settings, json_schema_input_type=str | dict[str, Any]),
    AfterValidator(_accepted),
]


class WorkloadTerms(Request):
    """What the template `workload` runs: each network under each scheduler in each mode on generated data, with the
    largest number of threads; the last scheduler with the other numbers as well, and there also on real data and with
    larger batches."""

    networks: list[Network] = Field(
        default_factory=lambda: [{"model": name} for name in NETWORKS], min_length=1, max_length=MOST_NETWORKS,
        description="models by name, or settings of runs with `model`, such as "
        '{"model": "lstm-tiny", "batch": 20, "seq": 35}',
    )  # fmt: skip
    schedulers: list[str] = Field(
        default_factory=lambda: ["fork-join", "task"], min_length=1, max_length=10, description="compared schedulers"
    )
    threads: list[int] = Field(
        default_factory=lambda: [1, 2], min_length=1, max_length=10,
        description="numbers of threads; with 1 among them, whether a phase is memory-bound is judged by two tests",
    )  # fmt: skip
    modes: list[Mode] = Field(
        default_factory=lambda: list(get_args(Mode)), min_length=1, max_length=2, description="modes beside each other"
    )
    batches: list[Annotated[int, Field(ge=2, le=1024)]] = Field(
        default_factory=lambda: [2], max_length=10,
        description="factors of the batch of further runs, whose peaks show how memory grows",
    )  # fmt: skip
    tokens: str | None = Field("stdlib", description="real data of networks that read tokens; null: generated only")
    images: str | None = Field(
        None, description="real data of networks that read images, such as cifar10:PATH; null: generated only"
    )
    pairs: str | None = Field(
        None, description="real data of networks that read pairs, such as pairs:PATH; null: generated only"
    )
    cloze: str | None = Field(
        None, description="real data of networks that read cloze records, such as cloze:PATH; null: generated only"
    )

    @property
    def real(self) -> dict[str, str | None]:
        """Real data by what networks read."""
        return {TOKENS: self.tokens, IMAGES: self.images, PAIRS: self.pairs, CLOZE: self.cloze}


def filled(given: Mapping[str, Any]) -> dict[str, Any]:
    """A request with the fields that its template makes. Fields that the request has stay, so that a filled request is
    equal to itself filled. Raises ValidationError for wrong settings of the template."""
    if given.get("template") != WORKLOAD:
        return dict(given)
    terms = WorkloadTerms.model_validate(given.get("workload") or {})
    base = given.get("base") or {}
    if isinstance(base, Model):
        base = base.model_dump(exclude_unset=True)
    return {**_workload(terms, base if isinstance(base, Mapping) else {}), **given}


def _workload(terms: WorkloadTerms, base: Mapping[str, Any]) -> dict[str, Any]:
    """Name, axes, zip and exclude."""
    names = list(dict.fromkeys([*ROW, *(name for network in terms.networks for name in network)]))
    rows: list[dict[str, Any]] = []
    larger: list[dict[str, Any]] = []
    real: list[dict[str, Any]] = []
    for network in terms.networks:
        trained = TrainConfig.from_dict(network)
        for mode in terms.modes:
            row = _row(names, network, trained, mode, base)
            rows.append(row)
            larger += [{**row, "batch": factor * row["batch"]} for factor in dict.fromkeys(terms.batches)]
            data = network.get("data") or terms.real[trained.model.reads]
            if mode == "train" and data not in (None, GENERATED):
                real.append({**row, "data": data})
    larger = [row for i, row in enumerate(larger) if row not in rows and row not in larger[:i]]
    every = [*rows, *larger, *real]
    widest, last = max(terms.threads), terms.schedulers[-1]
    others: list[dict[str, Any]] = [
        *({"scheduler": name} for name in terms.schedulers if name != last),
        *({"threads": count} for count in terms.threads if count != widest),
    ]
    narrow = [{"scheduler": name, "threads": count} for name in terms.schedulers if name != last
              for count in terms.threads if count != widest]  # fmt: skip
    data_of: list[dict[str, Any]] = [{"data": data} for data in dict.fromkeys(row["data"] for row in real)]
    shapes = {json.dumps([row["model"], row["batch"]]): {"model": row["model"], "batch": row["batch"]}
              for row in larger}  # fmt: skip
    alone = [*data_of, *shapes.values()]
    exclude = [*narrow, *({**part, **other} for part in alone for other in others)]
    called = ", ".join(_called(network["model"]) for network in terms.networks)
    return {
        "name": f"workload of {called}"[:200],
        "axes": {"scheduler": list(terms.schedulers), "threads": list(terms.threads)},
        "zip": [{name: [row[name] for row in every] for name in names}],
        **({"exclude": exclude} if exclude else {}),
    }


def _row(
    names: list[str], network: Mapping[str, Any], trained: TrainConfig, mode: str, base: Mapping[str, Any]
) -> dict[str, Any]:
    """The settings of a network in a mode on generated data: its own, else those of the base, else the defaults."""
    defaults = modes.in_mode(trained, mode, DEFAULTS).to_dict()
    unread = modes.UNREAD[mode]
    given = {name: value for name, value in base.items() if name != "seq" or trained.model.reads != IMAGES}
    given |= {name: value for name, value in network.items() if name not in unread}
    row = {name: defaults[name] if given.get(name) is None else given[name] for name in names}
    return {**row, "model": network["model"], "mode": mode, "data": GENERATED}


def _called(model: Any) -> str:
    return preset_name(model) if isinstance(model, str) else str(model.get("name") or model.get("network", "gpt2"))

