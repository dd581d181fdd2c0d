"""Facts about this machine and installation for the registration."""

from __future__ import annotations

import importlib.metadata
import platform
import shutil
import socket
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from gpt2core.node import host, openmp
from gpt2core.process.ranks import launcher
from gpt2core.spec import extras
from gpt2core.spec.errors import CoreError
from gpt2core.spec.schedulers import AUTO
from gpt2core.spec.sources import source_hash
from gpt2core.spec.version import version
from taskloom.contract.labels import INSTALLED, MPI, NODES, runtime_label
from taskloom.contract.workers import WorkerRegistration
from taskloom.worker import builds
from taskloom.worker.settings import Settings

PACKAGES = ("numba", "llvmlite", "numpy", "scipy", "mkl")


def software() -> dict[str, str]:
    """Versions, those of packages from their metadata (none is imported), and the hash of the trainer's sources."""
    versions = {"taskloom": version(), "python": platform.python_version(), "kernel": platform.release()}
    versions["hash"] = source_hash()
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


MACHINE_BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Life:
    """Identity of a worker's process, by which the server recognises repeated and late messages."""

    boot_id: str
    machine_boot_id: str | None
    started_s: float


def new_life() -> Life:
    """Create the identity of this process."""
    try:
        machine = str(uuid.UUID(host.read_text(MACHINE_BOOT)))
    except (TypeError, ValueError):  # hidden or imitated by a sandbox: the order of processes is then unknown
        machine = None
    return Life(uuid.uuid4().hex, machine, time.clock_gettime(time.CLOCK_BOOTTIME))


def registration(
    settings: Settings, life: Life, spool_id: str, measuring_peaks: bool = False
) -> WorkerRegistration:
    """This worker's registration. Its memory is the node's, or its Slurm job's if that is less."""
    memory_bytes = host.usable_memory_bytes()
    if settings.job is not None:
        memory_bytes = min(memory_bytes, settings.job.memory_bytes or memory_bytes)
    return WorkerRegistration(
        worker_id=settings.worker_id,
        boot_id=life.boot_id,
        machine_boot_id=life.machine_boot_id,
        started_s=life.started_s,
        spool_id=spool_id,
        node=socket.gethostname()[:200],
        cores=list(settings.cores),
        memory_bytes=memory_bytes,
        labels={**builds.labels(), **runtime_labels(), **mpi_labels(), **settings.labels, **nodes_labels(settings)},
        software=software(),
        topology=host.topology(list(settings.cores)),
        **({"measuring_peaks": True} if measuring_peaks else {}),
    )


def runtime_labels() -> dict[str, str]:
    """Labels for this node's OpenMP runtimes."""
    here = list(openmp.find())
    return {runtime_label(name): INSTALLED for name in [*here, *([AUTO] if here else [])]}


def mpi_labels() -> dict[str, str]:
    """The label of a node that can start several ranks."""
    try:
        launcher(2)
    except CoreError:
        return {}
    return {MPI: INSTALLED}


def nodes_labels(settings: Settings) -> dict[str, str]:
    """The label of a worker that can start ranks on several nodes."""
    starts = extras.has("mpi") and shutil.which(settings.launcher[0]) is not None
    return {NODES: str(settings.nodes)} if settings.nodes > 1 and starts else {}
