"""Sizes of our own matrix product's panels and scratch. No Numba: what sizes a run's memory reads them."""

PANEL = 48  # columns of B that our own matrix product brings together
PRODUCT_DEPTH = 768  # words of a column that it takes at a time
PRODUCT_BLOCK = 256 * PRODUCT_DEPTH  # words of A: with a panel, what a core's second cache holds
PRODUCT_SCRATCH = PRODUCT_DEPTH * (PANEL + 2) + PRODUCT_BLOCK  # words; two for the place of a line
