"""Matrix products for the bodies of kernels: see gemm/multiply.py, which is loaded when one is compiled."""

from gpt2core.compile.later import Later

multiply, multiply_halves = (Later("gpt2core.gemm.multiply", name) for name in ("multiply", "multiply_halves"))
