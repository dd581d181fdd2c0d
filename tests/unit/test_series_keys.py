"""Keys of series that earlier versions have stored: a new setting at its default does not end a series."""

from __future__ import annotations

import pytest

from gpt2core.spec.config import TrainConfig
from gpt2core.spec.series import LATER_SETTINGS, series_key, without_new

# Recorded by the version of 25 November 2026 for the default configuration, when only grad_accum and grad_clip were
# later settings.
ENVIRONMENT = {"node": "n1", "cores": [0, 1], "cpu_model": "x"}
RECORDED = "4b393b6682dcaa320ee49c95726fe32e6a3a88cdee4335852dfba19009039476"


def test_a_stored_key_holds_for_results_with_and_without_later_settings() -> None:
    config = TrainConfig().to_dict()
    without = {name: value for name, value in config.items() if name not in LATER_SETTINGS}
    assert series_key(config, ENVIRONMENT) == series_key(without, ENVIRONMENT) == RECORDED


@pytest.mark.parametrize(
    "name", ["optimizer", "momentum", "lr_schedule", "carry_state", "op_order", "unit_slice", "ranks"]
)
def test_a_later_setting_with_another_value_is_another_series(name: str) -> None:
    assert series_key(TrainConfig().to_dict() | {name: "other"}, ENVIRONMENT) != RECORDED


def test_a_setting_with_another_default_for_the_network_is_never_left_out() -> None:
    """A worker would otherwise take the network's default in place of the requested value."""
    config = TrainConfig.from_dict({"model": "resnet", "momentum": 0.0, "optimizer": "sgd"}).to_dict()
    assert TrainConfig.from_dict(without_new(config)).to_dict() == config
    adamw = TrainConfig.from_dict({"model": "resnet", "optimizer": "adamw"}).to_dict()
    assert TrainConfig.from_dict(without_new(adamw)).to_dict() == adamw
    assert series_key(adamw, ENVIRONMENT) != series_key(config, ENVIRONMENT)
    assert "optimizer" not in without_new(TrainConfig().to_dict())
