"""What this machine and this installation are, as the server is told on registration."""

from __future__ import annotations

import importlib.metadata
import platform
import socket

from contract.workers import WorkerRegistration
from gpt2core import host
from worker.settings import Settings

PACKAGES = ("taskloom", "numba", "llvmlite", "numpy", "scipy", "mkl")


def software() -> dict[str, str]:
    """Versions, from the packages' metadata (none of them is imported), and the hash of the trainer's sources."""
    versions = {"python": platform.python_version(), "kernel": platform.release(), "hash": host.source_hash()}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def registration(settings: Settings, boot_id: str) -> WorkerRegistration:
    """This worker's introduction. boot_id names one life of the process, so that a repeat is known as such."""
    return WorkerRegistration(
        worker_id=settings.worker_id,
        boot_id=boot_id,
        node=socket.gethostname()[:200],
        cores=list(settings.cores),
        memory_bytes=host.usable_memory_bytes(),
        labels=dict(settings.labels),
        software=software(),
        topology=host.topology(list(settings.cores)),
    )
