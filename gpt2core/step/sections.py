"""Threads of single ops, by patterns of their names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

from gpt2core.spec.errors import ConfigError
from gpt2core.step.ops import Op, Program

WILD = "*?"


def op_threads(program: Program, table: Mapping[str, int] | None, threads: int) -> list[int]:
    """Number of threads of each loop: that of the most specific pattern that matches its op, else `threads`.

    A pattern matches an op's name, or one of the parts of a fused op: `qkv`, `fc*`; with a layer `qkv[3]`, `fc*[3]`.
    One with a layer is more specific than one without, then one without a wildcard, then a longer one. If parts of an
    op, or the ops of a loop, have different numbers of threads, the smallest counts.
    """
    return [min((n for op in loop for n in _of_parts(op, table or {})), default=threads) for loop in program.loops]


def check_op_threads(program: Program, table: Mapping[str, int] | None) -> None:
    """Raise ConfigError for a pattern that matches no op of the program."""
    for pattern in table or {}:
        if not any(_matches(pattern, part, op) for op in program.ops for part in parts(op)):
            known = dict.fromkeys(part for op in program.ops for part in parts(op))
            accepted = "ops of the step program, or patterns of them: " + ", ".join(known)
            raise ConfigError("op_threads", pattern, accepted)


def parts(op: Op) -> list[str]:
    """Name of an op, and those of its parts if it is fused."""
    return list(dict.fromkeys([op.name, *(call.name for call in op.calls)]))


def _of_parts(op: Op, table: Mapping[str, int]) -> Iterator[int]:
    for part in parts(op):
        found = [pattern for pattern in table if _matches(pattern, part, op)]
        if found:
            yield table[max(found, key=lambda pattern: (_split(pattern)[1] != "", not _wild(pattern), len(pattern)))]


def _matches(pattern: str, part: str, op: Op) -> bool:
    name, layer = _split(pattern)
    return fnmatchcase(part, name) and layer in ("", str(op.layer))


def _split(pattern: str) -> tuple[str, str]:
    """Pattern of the name, and the layer; "" for any."""
    name, bracket, layer = pattern.partition("[")
    return (name, layer[:-1]) if bracket and layer.endswith("]") else (pattern, "")


def _wild(pattern: str) -> bool:
    return any(letter in pattern for letter in WILD)
