"""Brings workers onto nodes through Slurm when the queue needs them."""
