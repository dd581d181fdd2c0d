"""Errors of the core pass from process to process with their message and their data."""

from __future__ import annotations

import inspect
import pickle

import pytest

from gpt2core.spec import errors

NUMBERS = {"value": 3, "step": 7, "needed_bytes": 9 << 30, "available_bytes": 1 << 30}
KINDS = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, errors.CoreError)]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_error_arrives_as_it_was_sent(kind: type[errors.CoreError]) -> None:
    known = inspect.signature(kind.__init__).parameters
    needed = [p.name for p in known.values() if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD][1:]
    sent = kind(*(NUMBERS.get(name, "why") for name in needed))
    arrived = pickle.loads(pickle.dumps(sent))
    assert type(arrived) is kind
    assert (str(arrived), arrived.fields(), arrived.exit_code) == (str(sent), sent.fields(), sent.exit_code)
