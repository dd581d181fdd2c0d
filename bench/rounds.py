"""The order of variants within a round."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")
SEED = 1337


def round_order(variants: Sequence[T], round_no: int, case: str = "", seed: int = SEED) -> list[T]:
    """The variants of a case in the order of a round, from 0: shuffled, and in every second round the reverse of the
    one before, so that of any two variants each runs first equally often."""
    order = random.Random(f"{seed} {round_no // 2} {case}").sample(variants, len(variants))
    return order[::-1] if round_no % 2 else order
