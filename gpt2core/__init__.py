"""The trainer: networks as step programs, kernels, and schedulers that run them. Knows no HTTP and no database."""
