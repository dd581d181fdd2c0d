"""The model of a request is a preset's name or the sizes of one network; what was accepted once is accepted still."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema_rs import Draft202012Validator

from gpt2core.spec.config import TrainConfig
from gpt2core.spec.networks import NETWORKS, sizes_of
from taskloom.contract.experiments import ExperimentRequest
from taskloom.contract.runs import RunSpec

SCHEMA = RunSpec.model_json_schema()["properties"]["model"]
# Requests of 18 November (before there were other networks) to 27 November, and configurations of stored results.
RECORDED: list[Any] = [
    "tiny",
    "gpt2",
    "gpt2-124m",
    {"layers": 1, "heads": 2, "channels": 32, "vocab": 256, "context": 64},
    {"channels": 1536},
    {"layers": 2, "heads": 4, "channels": 64, "vocab": 256, "context": 128, "name": "tiny"},
    {"network": "gpt2", "layers": 2},
    "lstm-tiny",
    "lstm",
    {"network": "lstm"},
    {"network": "lstm", "embedding": 8, "hidden": 8, "layers": 1, "tied": True},
    {"network": "lstm", "embedding": 32, "hidden": 32, "layers": 2, "vocab": 256, "context": 1024, "tied": False,
     "name": "lstm-tiny"},
    "seq2seq-tiny",
    {"network": "seq2seq", "embedding": 6, "hidden": 10, "vocab": 23},
    "reader-tiny",
    {"network": "reader", "embedding": 6, "hidden": 5, "vocab": 23, "query": 6},
]  # fmt: skip


@pytest.mark.parametrize("model", RECORDED, ids=str)
def test_a_recorded_model_stays_valid_and_is_stored_as_it_is(model: Any) -> None:
    assert Draft202012Validator(SCHEMA).is_valid(model)
    request = ExperimentRequest.model_validate({"base": {"model": model, "seq": 8}})
    stored = request.base.model_dump(exclude_none=True)
    assert stored["model"] == model
    config = TrainConfig.from_dict(stored)
    assert TrainConfig.from_dict(config.to_dict()) == config


def test_each_network_has_its_sizes_in_the_document() -> None:
    objects = {each["title"]: each for each in SCHEMA["anyOf"] if each["type"] == "object"}
    assert list(objects) == list(NETWORKS)
    for name, each in objects.items():
        assert set(each["properties"]) == {"network", *sizes_of(name)}
    assert objects["lstm"]["properties"]["tied"] == {"default": False, "title": "Tied", "type": "boolean"}


@pytest.mark.parametrize("model", [{"hidden": 8}, {"network": "lstm", "heads": 4}, {"network": "rnn"}, 7], ids=str)
def test_the_document_refuses_mixed_sizes(model: Any) -> None:
    assert not Draft202012Validator(SCHEMA).is_valid(model)
