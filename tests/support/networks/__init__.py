"""Networks of tests, and the same ones in PyTorch."""
