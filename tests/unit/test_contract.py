"""Requests are strict, answers are open: docs/reference/api.md, Compatibility."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from pydantic import BaseModel, ValidationError

from taskloom import contract
from taskloom.contract.attempts import AttemptSummary, HeartbeatRequest
from taskloom.contract.bodies import Model, Request
from taskloom.contract.runs import RunSummary
from taskloom.contract.workers import WorkerSummary

for module in pkgutil.iter_modules(contract.__path__):
    importlib.import_module(f"taskloom.contract.{module.name}")


def below(kind: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for each in kind.__subclasses__():
        yield each
        yield from below(each)


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from models_in(part)


def is_open(kind: type[BaseModel]) -> bool:
    return kind.model_config.get("extra") == "ignore"


REQUESTS = sorted({*below(Request)}, key=lambda kind: kind.__name__)
ANSWERS = sorted({kind for kind in below(Model) if is_open(kind)}, key=lambda kind: kind.__name__)


@pytest.mark.parametrize("kind", ANSWERS, ids=lambda kind: kind.__name__)
def test_nothing_in_an_answer_refuses_what_it_does_not_know(kind: type[BaseModel]) -> None:
    for field in kind.model_fields.values():
        for inner in models_in(field.annotation):
            assert is_open(inner), inner


@pytest.mark.parametrize("kind", REQUESTS, ids=lambda kind: kind.__name__)
def test_a_request_refuses_what_it_does_not_know(kind: type[BaseModel]) -> None:
    if is_open(kind):  # an answer with the fields of a request
        assert kind.__name__ in ("PoolJobSeen", "PoolSummary", "ProgressSeen", "WorkerSummary")
        return
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        kind.model_validate({"no_such_field": 1})


def test_there_are_answers_and_requests() -> None:
    assert {AttemptSummary, RunSummary, WorkerSummary} <= set(ANSWERS)
    assert HeartbeatRequest not in ANSWERS
