"""The bound of a step: its products take what they would at the registers' rate, everything else what it took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

HOW = "share of the bound: what would be left of the ops' time with all products at the registers' rate"


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
