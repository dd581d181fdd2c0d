"""Object code is placed in memory as LLVM places it; what the linker does not know is left to LLVM."""

from __future__ import annotations

import ctypes
import errno
import platform
import struct
import subprocess
import sys
from pathlib import Path

import llvmlite.binding as llvm
import pytest

from gpt2core.compile import linker, objects
from gpt2core.compile.code import Compiled
from gpt2core.spec.errors import MachineError

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="this processor lacks x86-64's relocations")

TARGET = 'target triple = "x86_64-unknown-linux-gnu"\n'
# Constants of two alignments, one with an address in it; calls within the file and of the C library.
PROGRAM = """
@steps = private unnamed_addr constant [4 x i64] [i64 3, i64 5, i64 7, i64 11], align 64
@third = private unnamed_addr constant i64* getelementptr ([4 x i64], [4 x i64]* @steps, i64 0, i64 2)
declare double @exp(double)
declare i64 @labs(i64)
define internal i64 @inner(i64 %x) noinline { %y = mul i64 %x, %x  ret i64 %y }
define i64 @outer(i64 %x, i64 %at) {
  %place = load volatile i64*, i64** @third
  %seven = load i64, i64* %place
  %step = getelementptr [4 x i64], [4 x i64]* @steps, i64 0, i64 %at
  %more = load i64, i64* %step
  %square = call i64 @inner(i64 %x)
  %size = call i64 @labs(i64 %x)
  %zero = call i64 @rounded(double 0.0)
  %a = add i64 %square, %size
  %b = add i64 %a, %more
  %c = add i64 %b, %seven
  %d = add i64 %c, %zero
  ret i64 %d
}
define internal i64 @rounded(double %x) noinline { %y = call double @exp(double %x)  %z = fptosi double %y to i64
  ret i64 %z }
"""


def compiled(source: str, model: str = "large", triple: str = "x86_64-unknown-linux-gnu") -> bytes:
    """Object code of LLVM's assembly language."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(triple).create_target_machine(codemodel=model, reloc="static")
    code: bytes = machine.emit_object(llvm.parse_assembly(f'target triple = "{triple}"\n{source}'))
    return code


def call(address: int, *values: int) -> int:
    face = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * len(values))
    return int(face(address)(*values))


def test_code_constants_and_functions_of_the_c_library_are_reached() -> None:
    code = compiled(PROGRAM)
    outer = linker.link(code, "outer")
    assert [call(outer, x, at) for x, at in ((-4, 0), (6, 3))] == [16 + 4 + 3 + 7 + 1, 36 + 6 + 11 + 7 + 1]
    assert linker.link(code, "outer") != outer  # each file has memory of its own


def test_memory_of_code_is_executable_and_not_writable() -> None:
    outer = linker.link(compiled(PROGRAM), "outer")
    for line in Path("/proc/self/maps").read_text().splitlines():
        first, last = (int(end, 16) for end in line.split()[0].split("-"))
        if first <= outer < last:
            assert line.split()[1].startswith("r-xp")
            break
    else:
        pytest.fail("the code is in no mapping")


def test_zeros_take_no_room_in_the_file_and_are_zeros_in_memory() -> None:
    code = compiled("@few = constant [512 x i64] zeroinitializer\ndefine i64* @where() "
                              "{ ret i64* getelementptr ([512 x i64], [512 x i64]* @few, i64 0, i64 0) }")  # fmt: skip
    changed, sections = bytearray(code), linker._sections(code)
    zeros = next(i for i, section in enumerate(sections) if section.size == 4096)
    at, size = struct.unpack_from("<40xQ10xH", code)[0], struct.calcsize(linker.SECTION)
    struct.pack_into("<I", changed, at + zeros * size + 4, linker.ZEROS)
    struct.pack_into("<Q", changed, at + zeros * size + 24, 0)  # its content would be the file's header
    where = call(linker.link(bytes(changed), "where"))
    assert ctypes.string_at(where, 4096) == bytes(4096)


@pytest.mark.parametrize(
    ("source", "model", "reason"),
    [
        ("@x = global i64 5\ndefine i64 @f() { %y = load i64, i64* @x  ret i64 %y }", "large", "writable"),
        ("@x = thread_local global i64 5\ndefine i64 @f() { ret i64 1 }", "large", "writable"),
        ("@x = constant i64 5, align 65536\ndefine i64* @f() { ret i64* @x }", "large", "aligned"),
        ("declare i64 @no_such_function()\ndefine i64 @f() { %y = call i64 @no_such_function()  ret i64 %y }", "large",
         "no_such_function"),
        ("declare i64 @labs(i64)\ndefine i64 @f() { %y = call i64 @labs(i64 1)  ret i64 %y }", "small", "relocation"),
        ("define i64 @g() { ret i64 1 }", "large", "does not define f"),
    ],
)  # fmt: skip
def test_what_is_not_supported_is_refused(source: str, model: str, reason: str) -> None:
    with pytest.raises(linker.Unsupported, match=reason):
        linker.link(compiled(source, model), "f")


def test_files_of_other_systems_and_processors_are_refused() -> None:
    source = "define i64 @f() { ret i64 1 }"
    for triple in ("aarch64-unknown-linux-gnu", "x86_64-apple-darwin", "i386-unknown-linux-gnu"):
        with pytest.raises(linker.Unsupported):
            linker.link(compiled(source, "small", triple), "f")
    with pytest.raises(linker.Unsupported):
        linker.link(b"", "f")


def test_llvm_links_what_is_not_supported() -> None:
    source = "@x = global i64 5\ndefine i64 @counted() { %y = load i64, i64* @x  %z = add i64 %y, 1\n" \
             "store i64 %z, i64* @x  ret i64 %z }"  # fmt: skip
    address = objects._link("counted", Compiled(compiled(source), ()))
    assert [call(address), call(address)] == [6, 7]


def test_refused_memory_is_an_error_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    code = compiled(PROGRAM)

    class Refusing:
        def __init__(self, function: str) -> None:
            self.function = function

        def __getattr__(self, name: str) -> object:
            if name == self.function:
                return lambda *_: (ctypes.set_errno(errno.EACCES), -1 % (1 << 64))[1]
            return getattr(c, name)

    c = linker._c()
    for function, what in (("mmap", "allocate"), ("mprotect", "executable")):
        monkeypatch.setattr(linker, "_c", lambda function=function: Refusing(function))
        with pytest.raises(PermissionError, match=what):
            linker.link(code, "outer")
        with pytest.raises(MachineError, match="executable memory"):
            objects._link("outer", Compiled(code, ()))
    ctypes.set_errno(0)


def test_a_file_that_is_cut_off_is_refused() -> None:
    code = compiled(PROGRAM)
    for size in range(len(code)):
        with pytest.raises(linker.Unsupported):
            linker.link(code[:size], "outer")


def altered(code: bytes, of: int, at: int, form: str, value: int) -> bytes:
    """Object code with another value at a place of each section header of a type."""
    changed = bytearray(code)
    begin, size = struct.unpack_from("<40xQ10xH", code)[0], struct.calcsize(linker.SECTION)
    for number, section in enumerate(linker._sections(code)):
        if section.type == of:
            struct.pack_into(form, changed, begin + number * size + at, value)
    return bytes(changed)


@pytest.mark.parametrize(
    ("of", "at", "value", "reason"),
    [(linker.RELOCATIONS, 4, linker.BARE_RELOCATIONS, "without addends"), (linker.RELOCATIONS, 40, 0, "malformed"),
     (linker.SYMBOLS, 40, 999, "malformed")],
)  # fmt: skip
def test_files_with_other_tables_are_refused(of: int, at: int, value: int, reason: str) -> None:
    with pytest.raises(linker.Unsupported, match=reason):
        linker.link(altered(compiled(PROGRAM), of, at, "<I", value), "outer")


def test_symbols_without_a_place_are_refused_where_they_are_used() -> None:
    code = bytearray(compiled(PROGRAM))
    (table,) = (section for section in linker._sections(bytes(code)) if section.type == linker.SYMBOLS)
    for at in range(table.offset + table.entry_size, table.offset + table.size, table.entry_size):
        if struct.unpack_from("<H", code, at + 6)[0] == linker.UNDEFINED:
            struct.pack_into("<H", code, at + 6, 0xFFF1)  # an absolute value
    with pytest.raises(linker.Unsupported, match="for None"):
        linker.link(bytes(code), "outer")


@pytest.mark.parametrize("scheduler", ["task", "fork-join"])
def test_a_trainer_whose_code_is_kept_loads_neither_llvm_nor_numba(scheduler: str) -> None:
    program = (
        "import sys; from pathlib import Path; from gpt2core.run.train import train\n"
        "from gpt2core.spec.config import TrainConfig; from gpt2core.spec.models import model_from\n"
        "train(TrainConfig(model=model_from('tiny'), steps=3, threads=1, blas='own',\n"
        f"                  scheduler='{scheduler}'))\n"
        "maps = Path('/proc/self/maps').read_text()\n"
        "print([name for name in ('numba', 'llvmlite.binding') if name in sys.modules],\n"
        "      [name for name in ('libllvmlite', 'libmkl_rt', 'libscipy_openblas-') if name in maps])\n"
    )
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] []"
