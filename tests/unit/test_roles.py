"""Each setting has one role, from which the lists of comparability follow."""

import dataclasses
import json
from collections import Counter

import pytest

from gpt2core.spec.config import DEFAULTS, OF_NETWORK, SETTINGS, TrainConfig
from gpt2core.spec.field_types import is_integer
from gpt2core.spec.fields import DECLARED, ROLES, setting
from gpt2core.spec.models import ModelConfig
from gpt2core.spec.networks import OWN_SETTINGS
from gpt2core.spec.roles import MAIN, PROBLEM, declared, with_role
from gpt2core.spec.series import IN_FIRST_KEYS, LATER_SETTINGS, NOT_SERIES
from taskloom.analysis.agreement import COMPARED, SLICES
from taskloom.analysis.comparison import compare
from taskloom.analysis.processes import Process
from taskloom.contract.runs import MainSettings, RunSpec
from taskloom.server.queue.attempts.payload import RESOLVED
from taskloom.server.queue.experiments.variants import NOT_SHAPE
from taskloom.server.read.exports.tables import SETTING_KINDS


def test_each_setting_has_one_role_and_each_role_a_setting():
    assert {item.name: item.metadata.get("role") for item in SETTINGS if item.metadata.get("role") not in ROLES} == {}
    assert set(ROLES) == {item.metadata["role"] for item in SETTINGS}
    with pytest.raises(TypeError, match="role"):
        setting(1, "a setting without a role")  # type: ignore[call-arg]


def test_the_lists_of_comparability_follow_from_the_roles():
    every = [*PROBLEM, *COMPARED, *with_role("place", "length", "output", "permission")]
    assert Counter(every) == Counter(item.name for item in SETTINGS)
    assert set(SLICES) < set(COMPARED)
    assert {"policy", "assignment", "fusion", "op_threads"} < set(COMPARED)
    assert set(NOT_SERIES) == {"steps", "warmup", "stop_at", "seed", "save", "trace", "cores"}
    assert "threads" not in NOT_SHAPE
    assert {"lr", "data", "cores"} < NOT_SHAPE


# For each compared setting, two values that a run may have.
VALUES = {
    "scheduler": ("task", "omp-task"), "sync": ("step", "phase"), "policy": ("breadth-first", "critical-path"),
    "assignment": ("static", "dynamic"), "runtime": ("libgomp", "libomp"), "op_threads": (None, {"qkv": 1}),
    "fusion": ("none", "rows"), "threads": (1, 2), "batch_slice": (1, 2), "token_slice": (32, 64),
    "blas": ("own", "mkl"), "op_order": ("layers", "diagonals"), "unit_slice": (8, 16),
    "ranks": (1, 2), "parallel": ("data", "tensor"),
}  # fmt: skip


@pytest.mark.parametrize("name", COMPARED)
def test_a_sweep_over_a_compared_setting_is_like_for_like_and_a_side_does_not_mix_it(make_result, name):
    """Fails for a compared setting without values in VALUES."""

    reads = name not in OWN_SETTINGS or name in ModelConfig.settings
    model = "tiny" if reads else "lstm-tiny"  # one that reads the setting

    def processes(value, first):
        results = [make_result([9.0, 1.0, 1.0], **{"model": model, name: value}) for _ in range(2)]
        return [Process(first + i, result, {name: value}, ("pair", i), "e", i) for i, result in enumerate(results)]

    a, b = processes(VALUES[name][0], 1), processes(VALUES[name][1], 3)
    found = compare(a, b)
    assert found.verdict != "refused", found.reason
    assert (found.differs, "like for like" in found.reason) == ([], False)
    mixed = compare([a[0], b[1]], [a[1]])
    assert mixed.verdict == "refused"
    assert mixed.reason.startswith(f"A mixes configurations: {name}: ")


def test_every_setting_is_in_the_configuration_of_a_result():
    assert set(TrainConfig(scheduler="omp-task").to_dict()) == {item.name for item in dataclasses.fields(TrainConfig)}


# The settings of the first stored results. A later one says so at its field, so that stored keys hold.
FIRST = {
    "model", "batch", "seq", "steps", "warmup", "scheduler", "sync", "policy", "assignment", "runtime", "op_threads",
    "fusion", "threads", "cores", "batch_slice", "token_slice", "precision", "blas", "data", "distribution",
    "checkpoint", "save", "lr", "beta1", "beta2", "eps", "weight_decay", "seed", "trace", "allow_oversubscription",
}  # fmt: skip


def test_a_setting_declares_all_that_lists_need():
    assert {item.name for item in SETTINGS if "later" not in item.metadata} == FIRST
    assert set(LATER_SETTINGS) == {item.name for item in SETTINGS} - FIRST
    assert IN_FIRST_KEYS == ("grad_accum", "grad_clip")
    assert {key for item in SETTINGS for key in item.metadata} == set(DECLARED)
    assert [item.name for item in SETTINGS if is_integer(item.name) and "unit" not in item.metadata] == ["seed"]
    with pytest.raises(TypeError, match="a setting declares no units"):
        setting(1, "a setting with a misspelt key", "size", units="steps")


def test_lists_of_settings_follow_from_the_fields():
    main = ("model", "scheduler", "sync", "threads", "batch", "seq", "batch_slice", "token_slice", "precision", "steps")
    assert MAIN == tuple(MainSettings.model_fields) == main
    assert set(RESOLVED) == {*MAIN, "warmup"} - {"precision"}
    assert {name for name, kind in SETTING_KINDS.items() if kind == "integer"} == {*declared("unit"), "seed"}
    assert set(declared("group")) == {*MAIN, "data", "mode"}


def test_the_form_gets_the_groups_of_settings_from_the_schema():
    properties = RunSpec.model_json_schema()["properties"]
    assert {name: schema["x-role"] for name, schema in properties.items()} == {
        item.name: item.metadata["role"] for item in SETTINGS
    }
    groups = {name: schema["x-group"] for name, schema in properties.items() if "x-group" in schema}
    assert groups == {item.name: item.metadata["group"] for item in SETTINGS if "group" in item.metadata}
    assert properties["seq"]["x-unit"] == "tokens"


def test_the_form_gets_the_defaults_of_settings_from_the_schema():
    properties = json.loads(json.dumps(RunSpec.model_json_schema()))["properties"]
    known = {name: value for name, value in TrainConfig().to_dict().items() if DEFAULTS[name] is not None}
    shown = {name: schema["x-default"] for name, schema in properties.items() if "x-default" in schema}
    assert shown == {**known, "model": "tiny", "runtime": "auto"}
    assert all(schema.get("default") is None for schema in properties.values())  # a missing setting stays missing
    of_gpt2 = {name for name, schema in properties.items() if schema.get("x-default-of") == "gpt2"}
    assert {"optimizer", "lr", "batch"} <= of_gpt2 == set(OF_NETWORK)
