"""Sizes of blocks that kernels work in. No Numba: what sizes a run's memory reads them."""

ATTENTION_BLOCK = 64  # queries that attention takes at a time
