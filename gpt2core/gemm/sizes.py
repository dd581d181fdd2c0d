"""Sizes of our own matrix product that do not depend on the processor. No Numba, because servers read them to size a
run's memory; gemm/blocking.py has the sizes of each family of processors.
"""

LANES = 16  # columns of a vector, and of a packed panel of a convolution
PANEL = 48  # columns of B in the widest packed panel: a multiple of every panel's
PRODUCT_SCRATCH = 768 * (2 * PANEL + 2) + 256 * 768  # words: two panels, places of lines and a line, a block of A


def panels_shape(n: int, k: int, parts: int = 1) -> tuple[int, int]:
    """Shape of the panels of a whole operand (k, n): a row for PANEL columns, as wide as any processor's. Or of `parts`
    that are multiplied one by one, each of at most n columns: the same number of rows for each.
    """
    return parts * -(-n // PANEL), PANEL * k
