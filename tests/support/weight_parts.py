"""Allowed distances of the weights' parts from PyTorch's."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

RELATIVE = 1e-5
# A bias added to every key shifts all scores of a query alike. Softmax is invariant to that: its true gradient is 0.
# AdamW follows rounding noise there, divided by its own size. PyTorch's float32 differs from its float64 by 6e-6.
RELATIVE_KEY_BIAS = 1e-4


def parts(name: str, array: np.ndarray) -> Iterator[tuple[str, np.ndarray, float]]:
    """(label, values, allowed relative distance) of a tensor; the key biases are separate."""
    if name != "qkvb":
        yield name, array, RELATIVE
        return
    query, key, value = np.split(array, 3, axis=-1)
    yield "qkvb without keys", np.concatenate([query, value], axis=-1), RELATIVE
    yield "qkvb of keys", key, RELATIVE_KEY_BIAS
