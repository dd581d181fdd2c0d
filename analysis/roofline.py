"""Roofline: what each op could reach on this node, what it reached, and whether the application is memory bound.

Source: Williams, Waterman & Patterson 2009: attainable = min(peak, intensity x bandwidth). Both limits are measured on
the node with the same number of threads (GEMM and triad). Bytes are compulsory ones by the kernels' formulae: what an
op finds in a cache costs no traffic, so it may reach more than its roof. The GEMM's peak is what the best library made
of one product; what registers can do, measured beside it, is what no product exceeds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gpt2core.spec.config import model_from

Bound = Literal["memory", "compute"]
Answer = Literal["yes", "partly", "no"]
MOSTLY = 0.5  # share of a phase's time
COSTLY = 0.9  # computation scalability below which sharing the machine has a price


@dataclass(frozen=True)
class Peaks:
    """Peaks of a node, for all `threads` threads together."""

    threads: int
    gflop_per_s: float  # of a product of 1024 x 1024
    triad_gb_per_s: float
    registers_gflop_per_s: float | None = None  # of multiply-adds in vector registers; null: not measured

    @property
    def ridge(self) -> float:
        """The intensity, flop a byte, from which on the peak is the limit."""
        return self.gflop_per_s / self.triad_gb_per_s


@dataclass(frozen=True)
class OpRoof:
    """One op. Rates are those of all threads together while they run it; null where its formula counts no flop or no
    bytes. share: achieved / attainable, of the flop rate or, where no flop are counted, of the bandwidth.
    registers_share: of the flop rate that registers can do."""

    op: str
    phase: str
    time_s: float
    time_share: float
    intensity: float | None
    achieved_gflop_per_s: float
    achieved_gb_per_s: float
    attainable_gflop_per_s: float | None
    share: float | None
    bound: Bound
    registers_share: float | None = None


@dataclass(frozen=True)
class MemoryBound:
    """The answer for one phase, with what it rests on. Rates are those of all threads together while they are in the
    phase's ops; bandwidth_share: of the measured bandwidth; what caches give is in it, so it may exceed 1."""

    phase: str
    answer: Answer
    intensity: float | None
    achieved_gflop_per_s: float
    achieved_gb_per_s: float
    bandwidth_share: float
    memory_time_share: float  # of the phase's time in ops below the ridge
    computation_scalability: float | None  # of the phase, against one thread
    reason: str


def peaks_of(environment: Mapping[str, Any], threads: int, precision: str = "fp32") -> Peaks | None:
    """The node's measured peaks with so many threads, of products in a precision; None if they were not measured."""
    measured = ((environment.get("peaks") or {}).get("threads") or {}).get(str(threads)) or {}
    prefix = "" if precision == "fp32" else f"{precision}_"
    gflop_per_s, in_registers = (measured.get(f"{prefix}{name}gflop_per_s") for name in ("", "registers_"))
    if not gflop_per_s or not measured.get("triad_gb_per_s"):
        return None
    return Peaks(threads, float(gflop_per_s), float(measured["triad_gb_per_s"]), in_registers or None)


def roofline(ops: Sequence[Mapping[str, Any]], peaks: Peaks) -> list[OpRoof]:
    """Each op of a result (`time_s` summed over its threads), the costliest first. Ops that took no time are left out.
    """
    timed = [op for op in ops if op["time_s"] > 0]
    total_s = math.fsum(op["time_s"] for op in timed)
    return sorted((_roof(op, peaks, total_s) for op in timed), key=lambda roof: -roof.time_s)


def _roof(op: Mapping[str, Any], peaks: Peaks, total_s: float) -> OpRoof:
    elapsed_s = op["time_s"] / peaks.threads  # had all threads run it at once, as the peaks were measured
    gflop, gb = op["flop"] / elapsed_s / 1e9, op["bytes"] / elapsed_s / 1e9
    intensity = op["flop"] / op["bytes"] if op["flop"] and op["bytes"] else None
    attainable = None if intensity is None else min(peaks.gflop_per_s, intensity * peaks.triad_gb_per_s)
    if attainable is not None:
        share: float | None = gflop / attainable
    elif op["bytes"]:
        share = gb / peaks.triad_gb_per_s
    else:
        share = gflop / peaks.gflop_per_s if op["flop"] else None
    in_registers = gflop / peaks.registers_gflop_per_s if op["flop"] and peaks.registers_gflop_per_s else None
    memory = op["bytes"] > 0 and (intensity is None or intensity < peaks.ridge)
    return OpRoof(
        op["op"], op["phase"], op["time_s"], op["time_s"] / total_s, intensity, gflop, gb, attainable, share,
        "memory" if memory else "compute", in_registers,
    )  # fmt: skip


def model_flop(config: Mapping[str, Any]) -> int:
    """Flop that a step of the model takes, however it is computed."""
    return model_from(config["model"]).step_flop(int(config["batch"]), int(config["seq"]))


def memory_bound(roofs: Sequence[OpRoof], scalability: Mapping[str, float], peaks: Peaks) -> list[MemoryBound]:
    """Is each phase memory bound? Two tests that have to agree for a yes or a no: most of its time is in ops below the
    ridge, and its useful time grows with the number of threads. scalability: by phase, useful time of one thread over
    useful time here; a phase that is not in it is judged by the first test alone."""
    phases = list(dict.fromkeys(roof.phase for roof in roofs))
    return [_judge(phase, [r for r in roofs if r.phase == phase], scalability.get(phase), peaks) for phase in phases]


def _judge(phase: str, roofs: Sequence[OpRoof], scalability: float | None, peaks: Peaks) -> MemoryBound:
    total_s = math.fsum(roof.time_s for roof in roofs)
    gflop_per_s = math.fsum(roof.achieved_gflop_per_s * roof.time_s for roof in roofs) / total_s
    gb_per_s = math.fsum(roof.achieved_gb_per_s * roof.time_s for roof in roofs) / total_s
    memory = math.fsum(roof.time_s for roof in roofs if roof.bound == "memory") / total_s
    below, costly = memory >= MOSTLY, scalability is not None and scalability < COSTLY
    reason = f"{memory:.0%} of its time is in ops below the ridge"
    if scalability is None:
        answer: Answer = "yes" if below else "no"
        reason += "; without a one-thread run nothing is known of its computation scalability"
    else:
        answer = "yes" if below and costly else "partly" if below or costly else "no"
        reason += f"; its useful time grew to {1 / scalability:.2f} of one thread's"
        reason += f" (computation scalability {scalability:.2f})"
    return MemoryBound(
        phase, answer, gflop_per_s / gb_per_s if gb_per_s else None, gflop_per_s, gb_per_s,
        gb_per_s / peaks.triad_gb_per_s, memory, scalability, reason,
    )  # fmt: skip
