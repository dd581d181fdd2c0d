"""Training in bf16 has the loss curve of float32 and the same bits under every scheduler."""

from __future__ import annotations

import ctypes
import dataclasses
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpt2core.compile.bfloat16 import native
from gpt2core.gemm import libraries as gemm
from gpt2core.gemm import tiles
from gpt2core.gemm.multiply import own_product_of_pairs, own_product_of_rounded, own_product_of_tiles
from gpt2core.run.train import train
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.fields import BLAS
from gpt2core.spec.models import ModelConfig, model_from

SMALL = TrainConfig(
    model=ModelConfig(layers=3, heads=4, channels=96, vocab=256, context=64),
    batch=4, seq=32, steps=50, lr=5e-4, precision="bf16", data="stdlib", scheduler="serial",
)  # fmt: skip
LIBRARIES = [library.name for library in gemm.available("bf16") if library.name in BLAS]


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_loss_curve_is_that_of_fp32(library):
    config = dataclasses.replace(SMALL, blas=library)
    half, whole = train(config), train(dataclasses.replace(config, precision="fp32"))
    assert half.losses[-1] < 0.8 * half.losses[0]
    assert half.losses != whole.losses
    np.testing.assert_allclose(half.losses, whole.losses, rtol=0.01)


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_same_bits_by_every_scheduler(library):
    config = dataclasses.replace(
        SMALL, steps=4, blas=library, batch_slice=2, token_slice=7, allow_oversubscription=True
    )
    expected = train(config)
    changes: tuple[dict[str, Any], ...] = (
        {"scheduler": "fork-join", "threads": 3},
        {"scheduler": "fork-join", "threads": 2, "assignment": "dynamic"},
        {"scheduler": "task", "sync": "phase", "threads": 2},
        {"scheduler": "task", "sync": "none", "threads": 8},
    )
    for change in changes:
        got = train(dataclasses.replace(config, **change))
        assert got.losses == expected.losses, change
        assert got.weights_sha256 == expected.weights_sha256, change


def test_the_result_says_what_computed_the_products():
    result = train(dataclasses.replace(SMALL, steps=2, blas="own"))
    said = {op.op: op.blas for op in result.ops}
    assert said["qkv"] == "own"
    assert said["layernorm"] == ""
    assert gemm.ours("bf16").version in result.environment["blas"]["version"]


def test_a_library_without_bfloat16_leaves_it_to_our_own_product():
    result = train(dataclasses.replace(SMALL, steps=1, blas="openblas"))
    assert {op.blas for op in result.ops if op.op == "qkv"} == {"own"}
    assert result.environment["blas"]["name"] == "own"


@pytest.mark.skipif(not native(), reason="this processor lacks products of pairs")
def test_rounded_operands_are_a_candidate_beside_pairs(monkeypatch):
    """An Intel Xeon without AMX multiplies pairs of bfloat16 at half the rate of float32."""
    monkeypatch.setattr(tiles, "permitted", lambda: False)
    found = {library.name: library.entry for library in gemm.available("bf16")}
    assert (found["own"], found["own-rounded"]) == (own_product_of_pairs, own_product_of_rounded)


def test_tile_registers_are_used_where_the_process_may(monkeypatch):
    monkeypatch.setattr(tiles, "permitted", lambda: True)
    assert gemm.ours("bf16").entry is own_product_of_tiles
    assert "own-rounded" not in {library.name for library in gemm.available("bf16")}
    monkeypatch.setattr(tiles, "permitted", lambda: False)
    refused = gemm.ours("bf16")
    assert refused.entry is (own_product_of_pairs if native() else own_product_of_rounded)
    assert refused.version != "amx-bf16"  # other rounding: runs of both are told apart


def test_tile_registers_are_permitted_where_linux_grants_them():
    shown = set(Path("/proc/cpuinfo").read_text().split())
    arch_prctl, request, tile_data = 158, 0x1023, 18
    granted = {"amx_tile", "amx_bf16"} <= shown and not ctypes.CDLL(None).syscall(arch_prctl, request, tile_data)
    assert tiles.permitted() == granted


def test_the_system_may_refuse_tile_registers(monkeypatch):
    """Linux refuses them where it does not know them, or a thread's signal stack is too small for their contents."""
    monkeypatch.setattr(tiles, "exist", lambda: True)
    monkeypatch.setattr(tiles, "TILE_DATA", 62)  # a feature that no processor has
    assert not tiles.permitted.__wrapped__()
    monkeypatch.setattr(tiles, "exist", lambda: False)
    assert not tiles.permitted.__wrapped__()


OLDER = """
import re
from gpt2core.node import host
about = host.processor()
host.processor = lambda: {**about, "flags": " ".join(re.sub(r"avx512\\w*|amx_\\w*", "", about["flags"]).split())}
from gpt2core.compile import target
from gpt2core.run.train import train
from gpt2core.spec.config import TrainConfig
assert not any("avx512" in feature or "amx" in feature for feature in target.features())
print(train(TrainConfig(model="tiny", batch=2, seq=16, steps=3, precision="bf16", blas="own")).losses[-1])
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="this processor lacks x86-64's levels")
def test_a_processor_without_wide_vectors_or_bfloat16(tmp_path):
    """LLVM calls no function that nobody provides, and results are those of this processor but for rounding."""
    older = {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "", "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", OLDER], capture_output=True, text=True, check=False, env={**os.environ, **older}
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    here = train(TrainConfig(model=model_from("tiny"), batch=2, seq=16, steps=3, precision="bf16", blas="own"))
    assert float(done.stdout) == pytest.approx(here.losses[-1], rel=1e-3)
