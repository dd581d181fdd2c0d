"""Names of experiments that were submitted without one."""

from __future__ import annotations

from typing import Any

import pytest

from gpt2core.spec.config import TrainConfig
from taskloom.analysis.naming import configuration, experiment_name

SWEEP = {"scheduler": ["task", "fork-join"], "threads": [1, 2]}
PRIMARY = {"a": {"scheduler": "fork-join", "threads": 2}, "b": {"scheduler": "task", "threads": 2}}


@pytest.mark.parametrize(
    ("request_", "name"),
    [
        ({"base": {"model": "tiny"}, "axes": SWEEP}, "task or fork-join? tiny, 1 and 2 threads"),
        ({"base": {"model": "tiny"}, "axes": SWEEP, "primary": PRIMARY}, "fork-join or task? tiny, 1 and 2 threads"),
        ({"base": {"model": "tiny", "scheduler": "task", "threads": 2}}, "tiny, task, 2 threads"),
        ({"base": {"model": "tiny"}, "axes": {"threads": [1]}}, "tiny, 1 thread"),
        ({"base": {"model": "lstm-deep", "mode": "infer"}, "axes": {"token_slice": [16, 32, 64]}},
         "token slice 16, 32 or 64? lstm-deep, inference"),
        ({"base": {"model": "tiny"}, "axes": {"fusion": [None, "all"]}}, "fusion default or all? tiny"),
        ({"base": {"model": "tiny"}, "axes": {"seed": [1, 2, 3, 4, 5, 6]}}, "6 values of seed? tiny"),
        ({"base": {"model": "tiny"}, "zip": [{"threads": [1, 2], "token_slice": [16, 32]}]},
         "1 or 2 threads? tiny, token slice 16 and 32"),
        ({"axes": {"model": ["tiny", {"layers": 2, "network": "lstm"}]}}, "tiny or custom lstm?"),
        ({"base": {"model": {"layers": 2}}}, "custom gpt2"),
        ({"base": {"model": "tiny"}, "builds": ["abcdef0123456789", "1234567890abcdef"]},
         "build abcdef012345 or 1234567890ab? tiny"),
        ({"base": {"model": "tiny"}, "space": {"threads": [1, 2], "token_slice": [16, 32], "sync": ["none"]}},
         "which threads, token slice and sync? tiny"),
        ({"base": {"model": "tiny"}, "calibrates": True}, "calibration: tiny"),
        ({}, "tiny"),
    ],
)  # fmt: skip
def test_the_question_and_the_model(request_: dict[str, Any], name: str) -> None:
    assert experiment_name(request_) == name

@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"model": {"name": "tiny"}, "scheduler": "task", "sync": "none", "threads": 2, "batch": 4, "seq": 64,
          "steps": 12, "batch_slice": 1, "token_slice": 16, "precision": "fp32", "mode": "train", "seed": 3},
         "tiny, task, slices 1x16, sync none, batch 4, seq 64, precision fp32, 2 threads"),
        ({"model": {"name": "tiny"}, "scheduler": "serial", "sync": None, "threads": 1, "mode": "infer"},
         "tiny, inference, serial, 1 thread"),
    ],
)  # fmt: skip
def test_a_configuration_is_named_by_its_main_settings(config: dict[str, Any], name: str) -> None:
    assert configuration(config) == name


@pytest.mark.parametrize(
    ("setting", "name"),
    [("op_order", "op order diagonals"), ("data", "data synthetic"), ("lr", "lr 0.5"),
     ("allow_oversubscription", "allow oversubscription true")],
)  # fmt: skip
def test_configurations_that_only_another_setting_tells_apart_have_two_names(setting: str, name: str) -> None:
    other = {"op_order": "diagonals", "data": "synthetic", "lr": 0.5, "allow_oversubscription": True}[setting]
    both = [TrainConfig.from_dict({"model": "lstm-tiny", "scheduler": "fork-join", "threads": 2, **given}).to_dict()
            for given in ({}, {setting: other})]  # fmt: skip
    first, second = map(configuration, both)
    assert first == "lstm-tiny, fork-join, sync step, batch 4, seq 64, precision fp32, 2 threads"
    assert second == f"{first}, {name}"


def test_a_name_has_at_most_200_characters() -> None:
    assert len(experiment_name({"axes": {"cores": [[*range(64)], [*range(32)]]}})) == 200
