"""Roofline: attainable and achieved rates of each op on this node, and whether its phases are memory-bound.

Source: Williams, Waterman & Patterson 2009: attainable = min(peak, intensity x bandwidth). Both limits are measured on
the node with the same number of threads (GEMM and triad). Bytes are compulsory bytes by the kernels' formulae: data in
a cache costs no traffic, so an op may exceed its roof. The peak is that of the best library for one product; no product
exceeds the peak of registers, which is measured too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gpt2core.spec.models import model_from
from gpt2core.spec.phases import MODES
from gpt2core.spec.result import tokens_per_step

Bound = Literal["memory", "compute"]
Answer = Literal["yes", "partly", "no"]
MOSTLY = 0.5  # share of a phase's time
COSTLY = 0.9  # below this computation scalability, threads slow each other down


@dataclass(frozen=True)
class Peaks:
    """Peaks of a node, for all `threads` threads together."""

    threads: int
    gflop_per_s: float  # of a product of 1024 x 1024
    triad_gb_per_s: float
    registers_gflop_per_s: float | None = None  # of multiply-adds in registers, vector or tile; null: not measured

    @property
    def ridge(self) -> float:
        """The intensity, in flop per byte, above which the peak is the limit."""
        return self.gflop_per_s / self.triad_gb_per_s


@dataclass(frozen=True)
class OpRoof:
    """One op. Rates are of all threads together while they run it; null if its formula counts no flop or no bytes.
    share: achieved / attainable flop rate, or bandwidth if no flop are counted. registers_share: share of the
    registers' peak."""

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
    """The answer for one phase, with its evidence. Rates are of all threads together while they run the phase's ops;
    bandwidth_share: of the measured bandwidth; it includes traffic from caches, so it may exceed 1."""

    phase: str
    answer: Answer
    intensity: float | None
    achieved_gflop_per_s: float
    achieved_gb_per_s: float
    bandwidth_share: float
    memory_time_share: float  # share of the phase's time in ops below the ridge
    computation_scalability: float | None  # of the phase, against one thread
    reason: str


def peaks_of(environment: Mapping[str, Any], threads: int, precision: str = "fp32") -> Peaks | None:
    """The node's measured peaks for a number of threads and a precision; None if they were not measured."""
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
    elapsed_s = op["time_s"] / peaks.threads  # as if all threads had run it at once
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
    """Model FLOP of a step of the run's mode, over all its micro-batches."""
    model, positions, tokens = model_from(config["model"]), int(config["seq"]), tokens_per_step(config)
    samples = tokens // positions
    if MODES[config.get("mode", "train")].has_gradients:
        return model.step_flop(samples, positions)
    return model.forward_flop(samples, positions, samples if config["logits"] == "last" else tokens)


def memory_bound(roofs: Sequence[OpRoof], scalability: Mapping[str, float], peaks: Peaks) -> list[MemoryBound]:
    """Decide whether each phase is memory-bound. Two tests must agree for a yes or a no: most of its time is in ops
    below the ridge, and its useful time grows with the number of threads. scalability: by phase, useful time of one
    thread over useful time here; a phase without it is judged by the first test alone."""
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
        reason += "; its computation scalability is unknown without a one-thread run"
    else:
        answer = "yes" if below and costly else "partly" if below or costly else "no"
        reason += f"; its useful time is {1 / scalability:.2f} times that of one thread"
        reason += f" (computation scalability {scalability:.2f})"
    return MemoryBound(
        phase, answer, gflop_per_s / gb_per_s if gb_per_s else None, gflop_per_s, gb_per_s,
        gb_per_s / peaks.triad_gb_per_s, memory, scalability, reason,
    )  # fmt: skip
