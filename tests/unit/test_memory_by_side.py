"""The documented table of memory against the area of an image is what the formula gives."""

from __future__ import annotations

import re
from pathlib import Path

from gpt2core.networks.memory import memory_bytes
from gpt2core.spec.config import TrainConfig

PAGE = Path(__file__).parents[2] / "docs" / "methodology.md"
SIDES = (32, 64, 96, 128, 160, 192, 224)


def mib(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:,.1f}"


def test_memory_against_the_area_of_an_image() -> None:
    lines = re.findall(r"^\| (\d+ \| [\d,]+ \| .*) \|$", PAGE.read_text(), re.MULTILINE)
    assert [line.split(" | ") for line in lines] == [expected(side) for side in SIDES]


def expected(side: int) -> list[str]:
    found = []
    for mode in ("train", "infer"):
        config = TrainConfig.from_dict(
            {"model": {"network": "resnet", "side": side}, "batch": 32, "threads": 2, "mode": mode}
        )
        found.append(memory_bytes(config))
    training, inference = found
    return [
        str(side), f"{side**2:,}", mib(training["activations"]), mib(sum(training.values())),
        mib(sum(inference.values())),
    ]  # fmt: skip
