"""Step programs and the bits of training equal those of the recording (tests/golden/record_steps.py)."""

from __future__ import annotations

import json

import pytest

from tests.golden import record_steps

RECORDED = json.loads(record_steps.PATH.read_text())
SAME_BITS = RECORDED["processor"] == record_steps.processor()
TRAINED = [name for name in record_steps.SETTINGS if name not in record_steps.PLANNED]


def test_every_configuration_is_recorded():
    assert list(RECORDED["configurations"]) == list(record_steps.SETTINGS)


@pytest.mark.parametrize("name", record_steps.SETTINGS)
def test_tasks_edges_and_work(name):
    recorded, got = RECORDED["configurations"][name], record_steps.program(name)
    assert {key: recorded[key] for key in got} == got


@pytest.mark.parametrize("name", TRAINED)
def test_losses_and_weights(name):
    """Bits are equal with the recording's compiler and processor; with others, sums may be rounded differently."""
    recorded, got = RECORDED["configurations"][name], record_steps.outcome(name)
    assert got["losses"] == pytest.approx(recorded["losses"], rel=1e-2 if "bf16" in name else 1e-4)
    if SAME_BITS:
        assert got == {key: recorded[key] for key in got}
