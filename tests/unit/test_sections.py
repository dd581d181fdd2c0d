"""Threads of single ops by patterns of their names."""

from typing import Any

import pytest

from gpt2core.networks import program
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import ConfigError
from gpt2core.spec.models import model_from
from gpt2core.step import sections


@pytest.fixture(scope="module")
def tiny():
    return program.build(TrainConfig(model=model_from("tiny"), mode="infer", threads=4, fusion="none"))


@pytest.fixture(scope="module")
def fused():
    return program.build(TrainConfig(model=model_from("tiny"), mode="infer", threads=4, fusion="rows"))


def by_label(step, table):
    return {loop[0].label: n for loop, n in zip(step.loops, sections.op_threads(step, table, 4), strict=True)}


def test_the_most_specific_pattern_counts(tiny):
    found = by_label(tiny, {"f*": 1, "fc*": 2, "fc": 3, "fc[1]": 1, "*[0]": 2})
    assert found["fc[1]"] == 1
    assert found["fc[0]"] == 2
    assert found["fc_projection[1]"] == 2
    assert found["qkv[1]"] == 4


def test_a_fused_op_has_the_threads_of_its_parts(fused):
    found = by_label(fused, {"gelu": 2, "fc": 3, "layernorm": 1})
    assert found["fc+gelu[0]"] == 2
    assert found["encoder+layernorm"] == 1
    assert found["qkv[0]"] == 4
    assert by_label(fused, {"fc+gelu": 1})["fc+gelu[1]"] == 1


@pytest.mark.parametrize("pattern", ["fcc", "fc[7]", "x*", "fc[", ""])
def test_a_pattern_without_an_op_is_refused(tiny, pattern):
    with pytest.raises(ConfigError, match="ops of the step program, or patterns of them: tokens, encoder") as refused:
        sections.check_op_threads(tiny, {"qkv": 1, pattern: 1})
    assert refused.value.field == "op_threads"
    sections.check_op_threads(tiny, {"fc*[1]": 1})


def test_omp_for_takes_no_dynamic_shares_of_few_threads():
    settings: dict[str, Any] = {"scheduler": "omp-for", "threads": 2, "op_threads": "qkv=1"}
    TrainConfig(**settings)
    with pytest.raises(ConfigError, match="static with op_threads"):
        TrainConfig(**settings, assignment="dynamic")
