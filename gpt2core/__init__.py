"""The trainer: a GPT-2 step program, its kernels and the schedulers that run it. Knows no HTTP and no database."""
