"""What bench.ranks compares, without namespaces."""

from __future__ import annotations

import argparse

import pytest

from bench.ranks import ALONE, check_losses, compare, parsed_model, variants
from gpt2core.spec.config import TrainConfig


def test_ranks_that_divide_the_matrices_are_measured_beside_those_that_divide_the_batch():
    given = argparse.Namespace(
        batch=4, seq=64, threads=1, schedulers="fork-join,task", parallel="data,tensor", ddp_buckets="5"
    )
    found = variants(given, TrainConfig(allow_oversubscription=True))
    assert {name: (each.scheduler, each.parallel, each.ranks, each.batch) for name, each in found.items()} == {
        ALONE: ("fork-join", "data", 1, 2), "fork-join": ("fork-join", "data", 2, 4), "task": ("task", "data", 2, 4),
        "fork-join tensor": ("fork-join", "tensor", 2, 4), "task tensor": ("task", "tensor", 2, 4),
        "torch-ddp-5": ("task", "data", 2, 4),
    }  # fmt: skip


def test_hybrid_ranks_of_a_vgg_are_measured_beside_those_that_divide_the_batch():
    model = parsed_model('{"network": "vgg", "width": 4, "hidden": 96}')
    given = argparse.Namespace(
        batch=8, seq=1, threads=1, schedulers="task", parallel="data,hybrid", ddp_buckets=""
    )
    found = variants(given, TrainConfig(model=model, batch=1, data="synthetic", allow_oversubscription=True))
    assert {name: (each.parallel, each.ranks, each.batch, each.model) for name, each in found.items()} == {
        ALONE: ("data", 1, 4, model), "task": ("data", 2, 8, model), "task hybrid": ("hybrid", 2, 8, model),
    }  # fmt: skip
    assert parsed_model("small").name == "small"
    for wrong in ("{", "nothing", '{"network": "vgg", "hidden": 0}'):
        with pytest.raises(argparse.ArgumentTypeError):
            parsed_model(wrong)


def test_ratios_are_to_fork_join_of_the_same_ranks_to_the_batch_and_to_peers():
    step_s = {ALONE: 1, "fork-join": 4, "task": 2, "fork-join tensor": 12, "task tensor": 3, "torch-ddp-5": 8}
    found = compare({name: [float(s)] * 6 for name, s in step_s.items()})
    assert {(each["step"], each["of"]): round(each["ratio"], 9) for each in found} == {
        ("fork-join", "torch-ddp-5"): 0.5, ("task", "fork-join"): 0.5, ("task", "torch-ddp-5"): 0.25,
        ("fork-join tensor", "fork-join"): 3, ("fork-join tensor", "torch-ddp-5"): 1.5,
        ("task tensor", "fork-join tensor"): 0.25, ("task tensor", "task"): 1.5, ("task tensor", "torch-ddp-5"): 0.375,
    }  # fmt: skip


def test_losses_of_the_whole_batch_agree():
    runs = {ALONE: [{"losses": [3.0]}], "task": [{"losses": [5.0]}], "task tensor": [{"losses": [5.0 * (1 + 1e-6)]}]}
    check_losses(runs)
    runs["task tensor"].append({"losses": [5.1]})
    with pytest.raises(SystemExit, match=r"task tensor: its losses differ by 2\.0e-02 from ours"):
        check_losses(runs)
