"""The order of variants within a round.

It differs between occasions: a variant that runs first more often on one must not do so on all of them. A recording
contains its seed (bench.record).
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")
SEED = int(time.time())


def round_order(variants: Sequence[T], round_no: int, case: str = "", seed: int = SEED) -> list[T]:
    """The variants of a case in the order of a round, from 0: shuffled, and in every second round the reverse of the
    one before, so that of any two variants each runs first equally often in an even number of rounds."""
    order = random.Random(f"{seed} {round_no // 2} {case}").sample(variants, len(variants))
    return order[::-1] if round_no % 2 else order
