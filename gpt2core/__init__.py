"""The trainer: networks, written forward, become step programs, which schedulers run, for training and for inference.

Knows no HTTP and no database. docs/architecture.md goes through its rooms.
"""
