"""Places object code for x86-64 in this process's memory, where LLVM need not be loaded for it.

Numba compiles for the large code model, so code contains addresses of 64 bits, and one kind of relocation suffices.
Anything else raises Unsupported, and objects.py lets LLVM link the file.

Source: ELF-64 Object File Format, version 1.5; System V ABI, AMD64 supplement.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

X86_64, RELOCATABLE = 62, 1  # machine and type of a file
HEADER, SECTION, SYMBOL, RELOCATION = "<16xHH20xQ10xHHH", "<IIQQQQIIQQ", "<IBBHQQ", "<QQq"
SYMBOLS, RELOCATIONS, ZEROS, BARE_RELOCATIONS, UNWINDING = 2, 4, 8, 9, 0x70000001  # types of sections
WRITABLE, IN_MEMORY, THREAD_LOCAL = 1, 2, 0x400  # flags of sections
UNDEFINED = 0  # section of a symbol that another file defines
ADDRESS = 1  # R_X86_64_64, the type of a relocation


class Unsupported(Exception):
    """An object file that this linker does not place."""


class Section(NamedTuple):
    """A section's header."""

    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int


class Symbol(NamedTuple):
    """A symbol: `place` is its offset in the file's memory, or None if another library defines it."""

    name: str
    place: int | None


def link(code: bytes, symbol: str) -> int:
    """Copy an object file's code and constants into executable memory, which is never freed; return a symbol's address.

    Raises Unsupported for a file of another kind or with writable data, and OSError if the system refuses executable
    memory.
    """
    try:
        sections = _sections(code)
        places, size = _places(sections)
        tables = {
            number: _symbols(code, sections, section, places)
            for number, section in enumerate(sections)
            if section.type == SYMBOLS
        }
        known = [each.place for table in tables.values() for each in table if each and each.name == symbol]
        if not known or known[0] is None:
            raise Unsupported(f"the file does not define {symbol}")
        own, foreign = _relocations(code, sections, places, tables)
    except (struct.error, LookupError, ValueError) as error:
        raise Unsupported(f"malformed: {error}") from error
    start = _memory(size)
    image = bytearray(size)
    for number, place in places.items():
        if sections[number].type != ZEROS:
            image[place : place + sections[number].size] = _content(code, sections[number])
    for at, place in own:
        struct.pack_into("<Q", image, at, start + place)
    for at, address in foreign:
        struct.pack_into("<Q", image, at, address)
    ctypes.memmove(start, bytes(image), size)
    if _c().mprotect(start, size, mmap.PROT_READ | mmap.PROT_EXEC):
        raise _system_error("cannot make memory executable")
    return start + known[0]


def _sections(code: bytes) -> list[Section]:
    if code[:6] != b"\x7fELF\x02\x01":
        raise Unsupported("not a little-endian 64-bit ELF file")
    kind, machine, at, size, count, _ = struct.unpack_from(HEADER, code)
    if (kind, machine, size) != (RELOCATABLE, X86_64, struct.calcsize(SECTION)):
        raise Unsupported(f"type {kind} for machine {machine}")
    return [Section(*struct.unpack_from(SECTION, code, at + size * i)) for i in range(count)]


def _content(code: bytes, section: Section) -> bytes:
    return code[section.offset : section.offset + section.size]


def _places(sections: Sequence[Section]) -> tuple[dict[int, int], int]:
    """The offset of every section that is needed in memory, by its number, and the total size."""
    places, end = {}, 0
    for number, section in enumerate(sections):
        if not section.flags & IN_MEMORY or section.type == UNWINDING:  # compiled code raises nothing
            continue
        if section.flags & (WRITABLE | THREAD_LOCAL):
            raise Unsupported(f"section {number} is writable")
        alignment = max(section.alignment, 1)
        if alignment > mmap.PAGESIZE:
            raise Unsupported(f"section {number} is aligned to {alignment} bytes")
        places[number] = -(-end // alignment) * alignment
        end = places[number] + section.size
    return places, max(end, 1)


def _symbols(
    code: bytes, sections: Sequence[Section], table: Section, places: Mapping[int, int]
) -> Sequence[Symbol | None]:
    """A table's symbols; None for those that have no place, such as those of sections that are not needed."""
    names, found = _content(code, sections[table.link]), list[Symbol | None]()
    for name_at, _, _, section, value, _ in struct.iter_unpack(SYMBOL, _content(code, table)):
        name = names[name_at : names.index(b"\0", name_at)].decode()
        if section in places:
            found.append(Symbol(name, places[section] + value))
        else:
            found.append(Symbol(name, None) if section == UNDEFINED else None)
    return found


def _relocations(
    code: bytes,
    sections: Sequence[Section],
    places: Mapping[int, int],
    tables: Mapping[int, Sequence[Symbol | None]],
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Offsets in the file's memory where addresses belong: each with an offset in this memory, and each with the
    address of something elsewhere."""
    own, foreign = [], []
    for section in sections:
        if section.type not in (RELOCATIONS, BARE_RELOCATIONS) or section.info not in places:
            continue
        if section.type == BARE_RELOCATIONS:
            raise Unsupported("relocations without addends")
        for offset, info, addend in struct.iter_unpack(RELOCATION, _content(code, section)):
            symbol, at = tables[section.link][info >> 32], places[section.info] + offset
            if info & 0xFFFFFFFF != ADDRESS or symbol is None:
                raise Unsupported(f"relocation of type {info & 0xFFFFFFFF} for {symbol}")
            if symbol.place is None:
                foreign.append((at, address_of(symbol.name) + addend))
            else:
                own.append((at, symbol.place + addend))
    return own, foreign


@functools.cache
def address_of(name: str) -> int:
    """The address of a function of the C library or its mathematics. Raises Unsupported if there is none."""
    for library in (_c, _mathematics):
        if hasattr(library(), name):
            return int(ctypes.cast(getattr(library(), name), ctypes.c_void_p).value or 0)
    raise Unsupported(f"the C library has no function {name}")


def _memory(size: int) -> int:
    """The address of new, writable memory."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    start = _c().mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
    if start in (None, ctypes.c_void_p(-1).value):
        raise _system_error("cannot allocate memory for code")
    return int(start)


@functools.cache
def _c() -> ctypes.CDLL:
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    library.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return library


@functools.cache
def _mathematics() -> ctypes.CDLL:
    try:
        return ctypes.CDLL("libm.so.6")
    except OSError as error:  # another C library than glibc
        raise Unsupported(str(error)) from error


def _system_error(what: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{what}: {os.strerror(number)}")
