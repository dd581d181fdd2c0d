"""Products for the bodies of kernels; their modules are loaded when one is compiled."""

from gpt2core.compile.later import names

multiply, multiply_band, is_own, weight_or_panels = names(
    "gpt2core.gemm.multiply", "multiply", "multiply_band", "is_own", "weight_or_panels"
)
pack_depth, pack_lanes, pack_panels = names("gpt2core.gemm.packing", "pack_depth", "pack_lanes", "pack_panels")
TILE_COLUMNS, TILE_ROWS, ragged_tile, whole_tile = names(
    "gpt2core.gemm.strided_tile", "TILE_COLUMNS", "TILE_ROWS", "ragged_tile", "whole_tile"
)
