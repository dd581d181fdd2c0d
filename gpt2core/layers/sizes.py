"""Sizes of blocks of kernels. No Numba, because servers read them to size a run's memory."""

ATTENTION_BLOCK = 64  # queries that attention processes at a time
PART, PART_ROWS = 128 * 768, 256  # float32 of a linear layer's output before they are rounded, and the most rows
