"""Submits Slurm jobs that start workers when the queue needs them."""
