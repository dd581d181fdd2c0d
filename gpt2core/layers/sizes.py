"""Sizes of blocks of kernels. No Numba, because servers read them to size a run's memory."""

ATTENTION_BLOCK = 64  # queries that attention processes at a time
