"""Sizes of our own matrix product's panels and scratch. No Numba, because servers read them to size a run's memory."""

LANES = 16  # columns of a vector, and of a packed panel of a convolution
PANEL = 48  # columns of B in a packed panel of our own matrix product
PRODUCT_DEPTH = 768  # words of a column in a panel
PRODUCT_BLOCK = 256 * PRODUCT_DEPTH  # words of A; with a panel they fit into a core's second cache
PRODUCT_SCRATCH = PRODUCT_DEPTH * (2 * PANEL + 2) + PRODUCT_BLOCK  # words; two panels; places of lines, and a line
