"""Agreement of results of inference: equal hashes at equal slices, else sketches within a tolerance."""

from __future__ import annotations

import pytest

from taskloom.analysis.agreement import OUTPUT_TOLERANCE, agree
from taskloom.analysis.processes import Process


@pytest.fixture
def inferred(make_result):
    def make(run_id: int, sha256: str = "a", shift: float = 0.0, **settings) -> Process:
        result = make_result(mode="infer", phase_share={}, **settings)
        sketch = [1.0 + shift * (-1) ** i for i in range(64)]
        return Process(run_id, {
            **result, "losses": [], "weights_sha256": None, "outputs_sha256": sha256, "outputs_sketch": sketch,
        })  # fmt: skip

    return make


def test_equal_slices_need_equal_hashes(inferred):
    assert agree(inferred(1), inferred(2, threads=2)).reason == "bit-identical"
    found = agree(inferred(1), inferred(2, "b", threads=2))
    assert (found.holds, found.exact) == (False, True)
    assert found.reason == "the outputs of runs 1 and 2 differ, with equal slices"


def test_other_slices_need_outputs_within_the_tolerance(inferred):
    near = agree(inferred(1), inferred(2, "b", 0.9 * OUTPUT_TOLERANCE, token_slice=16))
    assert (near.holds, near.exact) == (True, False)
    assert near.reason == "outputs within 0.0001 of each row's norm"
    far = agree(inferred(1), inferred(2, "b", 1.1 * OUTPUT_TOLERANCE, token_slice=16))
    assert not far.holds
    assert "differ by about 0.00011 of each row's norm" in far.reason


@pytest.mark.parametrize("other", [{"logits": "last"}, {"score": True}])
def test_other_outputs_are_another_problem(inferred, other):
    found = agree(inferred(1), inferred(2, **other))
    assert not found.holds
    assert "the runs compute different problems: " in found.reason


def test_training_and_inference_are_different_problems(inferred, make_result):
    """Only the mode is named: not an optimizer's settings, which inference does not read."""
    for settings in ({"model": "tiny"}, {"model": "resnet14-cifar", "token_slice": 1}):
        found = agree(inferred(1, **settings), Process(2, make_result(**settings)))
        assert not found.holds
        assert found.reason == "the runs compute different problems: mode: infer / train"
