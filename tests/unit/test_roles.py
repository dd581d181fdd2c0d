"""Each setting has one role, from which the lists of comparability follow."""

import dataclasses
from collections import Counter

import pytest

from gpt2core.spec.config import PROBLEM, ROLES, SETTINGS, TrainConfig, setting, with_role
from gpt2core.spec.series import NOT_SERIES
from taskloom.analysis.agreement import COMPARED, SLICES
from taskloom.analysis.comparison import compare
from taskloom.analysis.processes import Process
from taskloom.server.queue.experiments.variants import NOT_SHAPE


def test_each_setting_has_one_role_and_each_role_a_setting():
    assert {item.name: item.metadata.get("role") for item in SETTINGS if item.metadata.get("role") not in ROLES} == {}
    assert set(ROLES) == {item.metadata["role"] for item in SETTINGS}
    with pytest.raises(TypeError, match="role"):
        setting(1, "a setting without a role")


def test_the_lists_of_comparability_follow_from_the_roles():
    every = [*PROBLEM, *COMPARED, *with_role("place", "length", "output", "permission")]
    assert Counter(every) == Counter(item.name for item in SETTINGS)
    assert set(SLICES) < set(COMPARED)
    assert {"policy", "assignment", "fusion", "op_threads"} < set(COMPARED)
    assert set(NOT_SERIES) == {"steps", "warmup", "seed", "save", "trace", "cores"}
    assert "threads" not in NOT_SHAPE
    assert {"lr", "data", "cores"} < NOT_SHAPE


# For each compared setting, two values that a run may have.
VALUES = {
    "scheduler": ("task", "omp-task"), "sync": ("step", "phase"), "policy": ("breadth-first", "critical-path"),
    "assignment": ("static", "dynamic"), "runtime": ("libgomp", "libomp"), "op_threads": (None, {"qkv": 1}),
    "fusion": ("none", "rows"), "threads": (1, 2), "batch_slice": (1, 2), "token_slice": (32, 64),
    "blas": ("own", "mkl"),
}  # fmt: skip


@pytest.mark.parametrize("name", COMPARED)
def test_a_sweep_over_a_compared_setting_is_like_for_like_and_a_side_does_not_mix_it(make_result, name):
    """Fails for a compared setting without values in VALUES."""

    def processes(value, first):
        results = [make_result([9.0, 1.0, 1.0], **{name: value}) for _ in range(2)]
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
