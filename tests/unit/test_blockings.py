"""How our own product is cut: the family of a processor, and what fits its scratch."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpt2core.compile import target
from gpt2core.compile.lanes import LANES
from gpt2core.gemm import blocking as blockings
from gpt2core.gemm.blocking import BLOCKINGS
from gpt2core.gemm.sizes import PANEL as WIDEST
from gpt2core.gemm.sizes import PRODUCT_SCRATCH
from gpt2core.node import host


@pytest.mark.parametrize(
    ("features", "family"),
    [("avx avx2 fma avx512f", "avx512"), ("avx avx2 fma", "avx2"), ("avx avx2", "generic"), ("fp asimd bf16", "neon"),
     ("", "generic")],
)  # fmt: skip
def test_the_family_is_that_of_the_features(monkeypatch: pytest.MonkeyPatch, features: str, family: str) -> None:
    monkeypatch.setattr(target, "second_cache_bytes", lambda: 1 << 20)
    monkeypatch.setattr(blockings, "features", lambda: frozenset(features.split()))
    monkeypatch.setattr(blockings, "is_zen4", lambda: False)
    assert blockings.family() == family
    assert blockings.blocking.__wrapped__() == BLOCKINGS[family]


@pytest.mark.parametrize(("size", "family"), [("512K", "avx2, small"), ("1280K", "avx2"), ("", "avx2, small")])
def test_without_a_large_second_cache_panels_are_small(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, size: str, family: str
) -> None:
    for number, (level, size_of) in enumerate([("1", "48K"), ("1", "32K"), ("2", size), ("3", "32768K")]):
        index = tmp_path / f"cpu0/cache/index{number}"
        index.mkdir(parents=True)
        (index / "level").write_text(level)
        (index / "size").write_text(size_of)
    monkeypatch.setattr(host, "CPU", tmp_path)
    monkeypatch.setattr(target, "second_cache_bytes", target.second_cache_bytes.__wrapped__)
    monkeypatch.setattr(blockings, "features", lambda: frozenset(["avx", "avx2", "fma"]))
    assert blockings.family() == family


def test_every_blocking_fits_the_scratch_and_its_tiles() -> None:
    for name, each in BLOCKINGS.items():
        assert each.depth * (2 * each.panel + 2) + each.block <= PRODUCT_SCRATCH, name
        assert WIDEST % each.panel == each.panel % LANES == 0, name
        assert each.group <= LANES, name
        assert each.group % each.rows[0] == 0, name
        assert each.rows[-1] == 1, name
        assert each.block >= each.group * each.depth + LANES - each.group, name
