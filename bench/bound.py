"""Bounds of a step and of its ops.

Of a step: its products take what they would at the registers' rate, everything else what it took. Of an op: it takes
the longer of what its bytes take at triad's rate and of what its arithmetic takes in registers. An exponential counts
as the multiply-adds of its instructions, which the FLOP of attention's formulae leave out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpt2core.spec.models import ModelConfig, model_from
from taskloom.analysis.roofline import peaks_of

HOW = "share of the bound: what would be left of the ops' time with all products at the registers' rate"
EXPONENTIAL = 32  # FLOP that registers do in its time: 16 instructions (compile/vector.py), each as a multiply-add
PER_EXPONENTIAL = {  # FLOP of an op's formula for each exponential, as layers/ count it
    ("gelu", "forward"): 18, ("gelu", "backward"): 27, ("cross_entropy", "loss"): 12,
    ("negative_log_likelihood", "loss"): 10,
}  # fmt: skip
ATTENTION = {("attention", "forward"): 4, ("attention", "backward"): 10}  # as above, for each channel of a head


def roofs_s(result: Mapping[str, Any]) -> dict[tuple[str, str], float]:
    """Seconds of all threads that each op of a result takes at least, by op and phase; none where the node's peaks are
    not known. An op whose operands are in a cache may take less."""
    config = result["config"]
    peaks = peaks_of(result["environment"], len(result["threads"]), config["precision"])
    if peaks is None or peaks.registers_gflop_per_s is None:
        return {}
    model, counted = model_from(config["model"]), dict(PER_EXPONENTIAL)
    if isinstance(model, ModelConfig):
        counted |= {op: flop * model.channels // model.heads for op, flop in ATTENTION.items()}
    found = {}
    for op in result["ops"]:
        name = op["op"], op["phase"]
        flop = op["flop"] * (1 + EXPONENTIAL / counted[name] if name in counted else 1)
        seconds = max(flop / peaks.registers_gflop_per_s, op["bytes"] / peaks.triad_gb_per_s) / 1e9
        found[name] = peaks.threads * seconds
    return found


def share_of_bound(roofs: Sequence[Mapping[str, Any]]) -> float | None:
    """The share of the ops' time that the bound has, from their roofs; None without a product, or where the registers'
    rate is not known.

    Products are the ops that computation limits. A product that memory limits is no faster in registers, and attention
    has other work besides its products.
    """
    products = [of for of in roofs if of["bound"] == "compute" and "attention" not in of["op"]]
    if not products or any(of.get("registers_share") is None for of in products):  # older recordings have none
        return None
    left: float = 1 - sum(of["time_share"] * (1 - of["registers_share"]) for of in products)
    return left
