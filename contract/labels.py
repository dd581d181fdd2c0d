"""Labels that a worker gives itself: for the builds that it has kept, the OpenMP runtimes and MPI of its node, and the
nodes of its job."""

from __future__ import annotations

MPI = "mpi"  # key of the label of workers that can start several ranks
NODES = "nodes"  # key of the label of workers whose ranks can be on several nodes; its value is their number
MOST_NODES = 4096
KEPT = "kept"  # value of the labels of builds
RUNTIME, INSTALLED = "runtime-", "installed"  # how keys of the labels of OpenMP runtimes begin; their value


def build_label(build: str) -> str:
    """Key of the label of workers that have kept a build."""
    return f"build-{build[:16]}"


def runtime_label(runtime: str) -> str:
    """Key of the label of workers whose node has an OpenMP runtime; for `auto`, any runtime."""
    return f"{RUNTIME}{runtime}"
