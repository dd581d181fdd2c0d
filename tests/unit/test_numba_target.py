"""Kernels, peaks and the table of products follow the processor for which Numba's settings let it compile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpt2core.compile import numba_target
from gpt2core.measure import environment
from gpt2core.node import host, peaks
from gpt2core.process import launch
from gpt2core.spec.errors import ConfigError
from tests.support.compiled import copy_compiled
from tests.support.processors import X86_64

SHOWN = frozenset(host.processor().get("flags", "").split())
V3 = {"NUMBA_CPU_NAME": "x86-64-v3", "NUMBA_CPU_FEATURES": ""}
PROGRAM = """
import json, re, sys
from gpt2core.compile import compiler, target
from gpt2core.gemm import libraries, registers, table, tiles
from gpt2core.compile.bfloat16 import native
from gpt2core.gemm.blocking import blocking
from gpt2core.node import peaks
finish, seen = compiler._finish, set()
def finished(native, *given):
    made = finish(native, *given)
    seen.update(re.findall(r"%([xyz]mm|k[0-7]|tmm)", native.library.get_asm_str()))
    return made
compiler._finish = finished
for precision in sys.argv[1:]:
    libraries.ours(precision).entry.address
print(json.dumps({
    "wider": [f for f in target.features() if f.startswith(("avx512", "amx"))], "registers": sorted(seen),
    "rows": blocking().most_rows, "bits": registers.vector_bits(), "chains": registers.chains(),
    "pairs": native(), "tiles": tiles.exist(), "own": libraries.ours().version, "peaks": str(peaks.path()),
    "products": str(table._path(libraries.available())),
}))
"""


def compiled(tmp_path: Path, *precisions: str, **settings: str) -> dict[str, Any]:
    """What a process with these settings compiles for, and the registers of its own products in these precisions."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *precisions], capture_output=True, text=True, check=True,
        env={**clean(), **settings, "NUMBA_CACHE_DIR": str(tmp_path)},
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A process that compiles for x86-64-v3."""
    return compiled(tmp_path_factory.mktemp("older"), "fp32", "bf16", **V3)


def clean() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_CPU_")}


@pytest.mark.skipif("avx2" not in SHOWN, reason="this processor lacks AVX2")
def test_code_for_x86_64_v3_uses_no_wider_instructions(older: dict[str, Any]) -> None:
    assert older["registers"] == ["xmm", "ymm"]
    assert (older["wider"], older["pairs"], older["tiles"]) == ([], False, False)
    assert (older["rows"], older["bits"], older["chains"]) == (6, 256, 12)
    assert older["own"] == "avx2"


@pytest.mark.skipif("avx512f" not in SHOWN, reason="this processor lacks AVX-512")
def test_peaks_and_products_of_another_target_are_kept_apart(tmp_path: Path, older: dict[str, Any]) -> None:
    usual = compiled(tmp_path, "fp32")
    assert (usual["rows"], usual["bits"], usual["own"]) == (8, 512, "avx512")
    assert "zmm" in usual["registers"]
    assert usual["peaks"] != older["peaks"]
    assert usual["products"] != older["products"]


@X86_64
@pytest.mark.parametrize(
    ("settings", "lost"),
    [
        ({}, ()),
        ({"NUMBA_CPU_NAME": "x86-64-v3"}, ("amx",)),  # Numba adds this processor's features
        ({"NUMBA_CPU_NAME": "x86-64-v3", "NUMBA_CPU_FEATURES": ""}, ("avx512", "amx")),
        ({"NUMBA_CPU_NAME": "generic"}, ("avx", "amx", "fma", "f16c", "vaes", "vpclmul")),
        ({"NUMBA_CPU_FEATURES": "-avx2,-avx"}, ("avx", "amx", "fma", "f16c", "vaes", "vpclmul")),
    ],
)
def test_features_are_those_that_llvm_uses(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], lost: tuple[str, ...]
) -> None:
    for name in ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES"):
        monkeypatch.delenv(name, raising=False)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    found = numba_target.used(SHOWN)
    assert found <= SHOWN
    assert {f for f in SHOWN - found if not f.startswith("amx_")} == {
        f for f in SHOWN if f.startswith(lost) and not f.startswith("amx_")
    }


@pytest.mark.parametrize("features", ["", None])
def test_an_unknown_processor_is_refused(monkeypatch: pytest.MonkeyPatch, features: str | None) -> None:
    monkeypatch.setenv("NUMBA_CPU_NAME", "pentium-5")
    monkeypatch.delenv("NUMBA_CPU_FEATURES", raising=False)
    if features is not None:
        monkeypatch.setenv("NUMBA_CPU_FEATURES", features)
    with pytest.raises(ConfigError, match=r"NUMBA_CPU_NAME = 'pentium-5'.*a processor that LLVM knows, such as "):
        numba_target.used(SHOWN)


@X86_64
def test_a_processor_with_more_instructions_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its code would end with an illegal instruction."""
    monkeypatch.setenv("NUMBA_CPU_NAME", "x86-64-v4")
    monkeypatch.setenv("NUMBA_CPU_FEATURES", "")
    with pytest.raises(ConfigError, match=r"NUMBA_CPU_NAME = 'x86-64-v4'.*without avx512f, which this one lacks"):
        numba_target.used(SHOWN - {"avx512f"})


def test_results_and_peaks_name_settings_of_numba_that_affect_code(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("NUMBA_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NUMBA_NUM_THREADS", "1")  # does not affect code
    assert environment.describe("own", "", [0])["numba_settings"] is None
    usual = peaks.path()
    monkeypatch.setenv("NUMBA_OPT", "1")
    monkeypatch.setenv("NUMBA_CPU_FEATURES", "")
    assert environment.describe("own", "", [0])["numba_settings"] == "NUMBA_CPU_FEATURES= NUMBA_OPT=1"
    assert peaks.path() != usual


TINY = json.dumps(
    {"model": "tiny", "batch": 1, "seq": 16, "steps": 3, "threads": 1, "data": "synthetic", "blas": "own"}
)


def trained(tmp_path: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        launch.command(tmp_path / "result.json"), input=TINY, capture_output=True, text=True, check=False,
        env={**launch.environment(), **settings},
    )  # fmt: skip


def test_a_shell_without_numbas_compiler_trains(tmp_path: Path) -> None:
    """NUMBA_DISABLE_JIT=1, Numba's debugging setting, also where kernels with and without functions of vectors, and a
    loop, were not compiled before."""
    copy_compiled(tmp_path / "code", without=("adamw", "attention_forward", "gelu_forward", "task_loop"))
    done = trained(tmp_path, NUMBA_DISABLE_JIT="1", NUMBA_CACHE_DIR=str(tmp_path / "code"))
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["compiled"] > 0
    assert result["environment"]["numba_settings"] == environment.describe("own", "", [0])["numba_settings"]


def test_a_folder_of_compiled_code_that_is_not_writable_is_named(tmp_path: Path) -> None:
    done = trained(tmp_path, NUMBA_CACHE_DIR="/proc/nope")
    assert done.returncode == 2, done.stderr
    error = json.loads(done.stdout.splitlines()[-1])
    assert (error["slug"], error["field"], error["value"]) == ("bad-config", "NUMBA_CACHE_DIR", "/proc/nope")
