"""The memory of networks on images against the side of the images: from the smallest that the network accepts."""

from __future__ import annotations

from typing import Any

import pytest

from gpt2core.networks.memory import memory_bytes
from gpt2core.spec.config import TrainConfig
from taskloom.server.read.analysis.growth import accepted

SIZES: dict[str, dict[str, Any]] = {
    "resnet": {"network": "resnet", "blocks": 1, "width": 4},
    "vgg": {"network": "vgg", "width": 4, "hidden": 8},
}
PEAKS = {32: 100 << 20, 64: 160 << 20, 224: 500 << 20}
SHAPE = {"batch": 2, "batch_slice": 1, "steps": 3, "warmup": 1, "token_slice": 1}


def run_all(api: Any, make_result: Any, models: list[Any], **settings: Any) -> list[dict[str, Any]]:
    """The growth of memory of an experiment on these models, each run once with a peak by its side."""
    made = api.submit(base={**SHAPE, **settings}, axes={"model": models}, repetitions=1)
    node = api.worker()
    for _ in models:
        lease = node.claim()
        result = make_result([9, 0.1, 0.1], **lease["spec"])
        if "side" in result["config"]["model"]:
            result["accuracy"] = [0.1] * 3
        result["memory_bytes"]["peak_rss"] = PEAKS[result["config"]["model"].get("side", 32)]
        result["compiled"] = 0
        node.upload(lease, result)
    found: list[dict[str, Any]] = api.get("/analysis/memory", experiment_id=made["id"])["growth"]
    return found


@pytest.mark.parametrize(("network", "least"), [("resnet", 4), ("vgg", 32)])
def test_memory_grows_with_the_side_of_images(api: Any, make_result: Any, network: str, least: int) -> None:
    models = [{**SIZES[network], "side": side} for side in PEAKS]
    by_batch, by_side = run_all(api, make_result, models)
    assert (by_batch["axis"], by_side["axis"]) == ("batch", "side")
    assert by_side["fixed"] == {"batch": 2}
    points = {point["size"]: point for point in by_side["points"]}
    assert list(points) == sorted(points)
    assert least <= min(points) < 2 * least  # sides are halved as long as the network accepts them
    assert 256 < max(points) <= 512
    assert {side: point["train_peak_bytes"] for side, point in points.items() if side in PEAKS} == PEAKS
    for side in points:
        for mode in ("train", "infer"):
            config = {**SHAPE, "model": {**SIZES[network], "side": side}, "mode": mode}
            assert points[side][f"{mode}_bytes"] == sum(memory_bytes(TrainConfig.from_dict(config)).values())


def test_a_preset_and_its_sizes_share_a_curve_and_other_networks_have_none(api: Any, make_result: Any) -> None:
    larger = {"network": "resnet", "side": 64}
    _, by_side = run_all(api, make_result, ["resnet14-cifar", larger, SIZES["vgg"], "tiny"])
    peaks = {point["size"]: point["train_peak_bytes"] for point in by_side["points"] if point["train_peak_bytes"]}
    assert peaks == {side: PEAKS[side] for side in (32, 64)}


def test_images_from_files_have_the_curve_of_generated_ones(api: Any, make_result: Any) -> None:
    """Though such files have images of one side only."""
    generated = run_all(api, make_result, ["resnet14-cifar"])
    assert run_all(api, make_result, ["resnet14-cifar"], data="cifar10:c10") == generated
    assert len(generated[1]["points"]) > 4
    for settings in ({"evaluate_every": 2, "split": "test"}, {"mode": "infer", "split": "val"}):
        config = TrainConfig.from_dict({"model": "resnet14-cifar", "data": "cifar10:c10", **settings})
        assert accepted(config, {"batch": 2, "side": 64}) is not None
