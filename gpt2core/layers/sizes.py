"""Sizes of blocks of kernels. No Numba, because servers read them to size a run's memory."""

ATTENTION_BLOCK = 64  # queries that attention processes at a time
PART_ROWS = 256  # at most, of a linear layer's output that are computed before they are rounded
PART = 128 * 768  # values of them; they stay in a core's second cache
TOLD = 3  # of each row, that ranks tell each other for the softmax (divided_loss.py)
