"""Cached machine code is compiled once, checked when it is read, and never confused with other code."""

from __future__ import annotations

import fcntl
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest

from gpt2core.compile import compiler, objects, target
from gpt2core.compile.calls import flatten
from gpt2core.compile.code import Compiled
from gpt2core.compile.jit import ENTRY_FLAGS, kernel, runtime
from gpt2core.node import cache, host

ABOUT = host.processor()


@runtime
def weighted(pair, rows, scale, negative):
    """The scaled sum of rows plus both numbers of a pair. It changes the rows."""
    total = 0.0
    for i in range(rows.shape[0]):
        for j in range(rows.shape[1]):
            total += rows[i, j]
            rows[i, j] = -1.0
    return (-1.0 if negative else 1.0) * (scale * total + pair[0] + pair[1])


@runtime
def halved(number):
    return number // 2


@kernel
def is_even(number):
    return number % 2 == 0


@runtime
def fails(number):
    if number > 3:
        raise ValueError
    return number


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of compiled code, and no loaded code."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(objects, "_loaded", {})
    return tmp_path


def test_python_calls_compiled_code_with_numbers_arrays_and_tuples() -> None:
    rows = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert weighted((1, 2.5), rows, np.float32(0.5), True) == -(7.5 + 3.5)
    assert (rows == -1).all()
    assert halved(-7) == -4
    assert halved(np.int32(9)) == 4
    assert is_even(4) is True
    assert is_even(5) is False


def test_what_compiled_code_cannot_be_given_is_refused() -> None:
    with pytest.raises(TypeError, match="C-ordered"):
        weighted((1, 2), np.zeros((4, 6), np.float32)[:, ::2], 1.0, False)
    with pytest.raises(TypeError, match="C-ordered"):
        halved("9")


def test_an_exception_in_compiled_code_is_one_in_python() -> None:
    assert fails(2) == 2
    with pytest.raises(RuntimeError, match="fails"):
        fails(4)


def test_arguments_of_other_kinds_are_other_code() -> None:
    array = np.zeros((2, 2), np.float32)
    read_only = array.copy()
    read_only.flags.writeable = False
    values = [1, True, 1.0, np.float32(1), array, array[0], read_only, (1, 1), (1, (1,)), np.zeros(2, np.int64)]
    assert len({flatten((value,))[0] for value in values}) == len(values)


def test_kept_code_is_not_made_again(folder: Path) -> None:
    made: list[str] = []

    def make(symbol: str) -> Compiled:
        made.append(symbol)
        return seven(symbol)

    first = objects.load("seven", ("a",), make)
    objects._loaded.clear()
    again = objects.load("seven", ("a",), make)
    assert (first.was_kept, again.was_kept, len(made)) == (False, True, 1)
    assert not objects.load("seven", ("b",), make).was_kept
    assert len(list(folder.glob("seven-*.o"))) == 2


@pytest.mark.usefixtures("folder")
def test_code_that_another_process_compiles_is_waited_for() -> None:
    def make(_: str) -> Compiled:
        raise AssertionError("it was compiled twice")

    path = objects._path("seven", ("waited",))
    path.parent.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor() as pool:
        with path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            waiting = pool.submit(objects.load, "seven", ("waited",), make)
            cache.write(path, seven(f"taskloom_{path.stem.replace('-', '_')}").to_bytes())
        assert waiting.result(60).address


@pytest.mark.parametrize(
    "damage",
    [lambda b: b[:-1], lambda b: b[:0], lambda b: b[:200] + bytes([b[200] ^ 1]) + b[201:],
     lambda b: bytes([b[0] ^ 1]) + b[1:], lambda b: b.replace(b'"none"', b'"bool"', 1)],
)  # fmt: skip
def test_damaged_code_is_made_again(folder: Path, damage) -> None:
    objects.load("seven", ("damaged",), seven)
    (path,) = folder.glob("seven-*.o")
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    assert cache.read(path) is None
    objects._loaded.clear()
    assert not objects.load("seven", ("damaged",), seven).was_kept
    assert cache.read(path) is not None


@pytest.mark.parametrize(
    ("where", "name", "other"),
    [
        (target, "version", lambda _: "0.0"),
        (target, "source_hash", lambda _: "other sources"),
        (target, "clock", lambda: "another"),
        (platform, "machine", lambda: "another"),
        (target, "about", lambda: {**ABOUT, "model": "another"}),
        (target, "about", lambda: {**ABOUT, "flags": f"{ABOUT.get('flags')} another"}),
        (target, "about", lambda: {**ABOUT, "Features": "another"}),
    ],
)
def test_code_of_another_version_or_processor_is_not_taken(
    monkeypatch: pytest.MonkeyPatch, where, name: str, other
) -> None:
    ours = target.identity.__wrapped__()
    monkeypatch.setattr(where, name, other)
    assert target.identity.__wrapped__() != ours


def test_the_present_clock_rate_does_not_tell_code_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = target.identity.__wrapped__()
    monkeypatch.setattr(target, "about", lambda: {**ABOUT, "cpu MHz": "1", "microcode": "another"})
    assert target.identity.__wrapped__() == ours


def test_llvm_names_a_processor_of_which_linux_lists_no_features(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "features", frozenset)
    assert target._processor() == (llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten())
    ours = target.identity.__wrapped__()
    monkeypatch.setattr(llvm, "get_host_cpu_name", lambda: "another")
    assert target.identity.__wrapped__() != ours


@pytest.mark.skipif(
    (platform.system(), platform.machine()) != ("Linux", "x86_64"), reason="this processor lacks x86's features"
)
@pytest.mark.parametrize(
    ("linux", "of_llvm"),
    [("sse2", "sse2"), ("avx", "avx"), ("avx512f", "avx512f"), ("avx512_bf16", "avx512bf16"), ("amx_tile", "amx-tile"),
     ("amx_bf16", "amx-bf16")],
)  # fmt: skip
def test_linux_and_llvm_agree_on_the_features_that_our_code_asks_for(linux: str, of_llvm: str) -> None:
    shown = host.processor()["flags"].split()
    assert (linux in shown) == bool(llvm.get_host_cpu_features().get(of_llvm, False))
    assert linux in shown or linux not in target.features()


def test_settings_of_the_compiler_tell_code_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = target.identity.__wrapped__()
    monkeypatch.setenv("NUMBA_NUM_THREADS", "7")
    assert target.identity.__wrapped__() == ours
    monkeypatch.setenv("NUMBA_OPT", "0")
    assert target.identity.__wrapped__() != ours


def test_code_that_calls_a_function_of_numba_is_loaded_with_it(tmp_path: Path) -> None:
    (tmp_path / "calling.py").write_text(
        "import math\nimport sys\nfrom gpt2core.compile.jit import runtime\n"
        "@runtime\ndef mantissa(x):\n    return math.frexp(x)[0]\n"
        "print(mantissa(12.0), 'numba' in sys.modules)\n"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, str(tmp_path / "calling.py")], env=environment, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == "0.75 True"


@pytest.mark.parametrize(
    ("line", "allocates"),
    [
        ("x[0] = np.ones(2).sum()", True),
        ("x[0] = (x * x).sum()", True),
        ("x[0:2] = x[1:3]", True),
        ("x[0] = x.nonsense", False),
    ],
)
def test_code_that_allocates_is_refused_in_plain_text(tmp_path: Path, line: str, allocates: bool) -> None:
    (tmp_path / "allocating.py").write_text(
        "import numpy as np\nfrom gpt2core.compile.jit import runtime\n"
        f"@runtime\ndef allocates(x):\n    {line}\n    return 0\n"
        "allocates(np.ones(3))\n"
    )
    done = subprocess.run(
        [sys.executable, str(tmp_path / "allocating.py")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert ("Compiled code must not allocate" in done.stderr) == allocates
    assert "\x1b" not in done.stderr


def test_a_closure_has_no_origin() -> None:
    captured = 3
    with pytest.raises(TypeError, match="closure"):
        objects.origin(lambda: captured)


def test_declaring_what_a_trainer_compiles_loads_no_compiler() -> None:
    program = "import sys; from gpt2core.run import train; print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def seven(symbol: str) -> Compiled:
    """A function that does nothing."""
    from gpt2core.compile import compiler

    return compiler.compile_entry(nothing, {}, 0, "i", symbol)


def nothing(_: int) -> None:
    """Compiled as an entry."""


def assembly(patch: pytest.MonkeyPatch, function: Callable[[Any], None], vectors: int = 0) -> str:
    """A function of an array of float32, compiled."""
    finish, finished = compiler._finish, []
    patch.setattr(compiler, "_finish", lambda native, *given: finished.append(native) or finish(native, *given))
    compiler.compile_face(function, ENTRY_FLAGS, vectors, [np.ones(64, np.float32)], "function")
    text: str = finished[0].library.get_asm_str()
    return text


@pytest.mark.skipif("sse2" not in target.features(), reason="this processor lacks registers of these names")
def test_loops_use_the_widest_vectors_of_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    def squares(numbers):
        for i in range(len(numbers)):
            numbers[i] = numbers[i] * numbers[i]

    widths = (("avx512f", "zmm"), ("avx", "ymm"), ("sse2", "xmm"))
    usable = [register for feature, register in widths if feature in target.features()]
    used = set(re.findall(r"%([xyz]mm)", assembly(monkeypatch, squares)))
    assert usable[0] in used
    assert used <= set(usable)


@pytest.mark.skipif("sse2" not in target.features(), reason="this processor lacks instructions of these names")
def test_a_kernel_computes_so_many_vectors_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    def chains(numbers):
        for i in range(len(numbers)):
            x = numbers[i]
            for _ in range(12):
                x = x * x + np.float32(1)
            numbers[i] = np.float32(1) / x

    alone, four = (len(re.findall("divps", assembly(monkeypatch, chains, vectors))) for vectors in (1, 4))
    assert four >= alone + 3
