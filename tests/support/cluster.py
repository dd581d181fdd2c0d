"""A real Slurm on one host: munged, slurmctld and a slurmd for each node, all of them our own, in one folder."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import socket
import stat
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from tests.support.patience import until

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol", "unshare", "hostname")
NODES = ("n1", "n2", "n3")
CONF = """\
ClusterName=taskloom
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
AuthType=auth/munge
AuthInfo=socket={folder}/run/munge.sock
CredType=cred/munge
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/run/slurmctld.pid
SlurmdPidFile={folder}/run/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin={task_plugin}
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
ReturnToService=2
KillWait=6
SlurmdTimeout=10
MpiDefault=none
SchedulerParameters=sched_interval=1,batch_sched_delay=1
NodeName=n[1-3] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{first}-{last}] CPUs=2 RealMemory=4000 State=UNKNOWN
PartitionName=main Nodes=n[1-3] Default=YES MaxTime=INFINITE PriorityTier=1 State=UP
PartitionName=urgent Nodes=n[1-3] MaxTime=INFINITE PriorityTier=10 State=UP
"""
# Slurm reads this if TaskPlugin names task/cgroup. It takes the host's version of cgroups, and no systemd.
CGROUP_CONF = "ConstrainCores=yes\nIgnoreSystemd=yes\n"


def missing() -> list[str]:
    """Programs of Slurm and Munge that this machine lacks."""
    sbin = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    return [name for name in PROGRAMS if shutil.which(name, path=sbin) is None]


def _free_ports(count: int) -> int:
    """The first of `count` consecutive free ports."""
    while True:
        with contextlib.ExitStack() as stack:
            first = stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
            with contextlib.suppress(OSError, OverflowError):
                for port in range(first + 1, first + count):
                    stack.enter_context(socket.create_server(("127.0.0.1", port)))
                return int(first)


class Cluster:
    """Slurm's daemons. `environment` makes Slurm's commands ask this cluster."""

    def __init__(self, folder: Path, exposed: str = "") -> None:
        self.folder, self.exposed = folder, exposed
        self.environment = {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}

    def start(self, task_plugin: str) -> None:
        """Start all daemons and wait until every node is idle."""
        folder = self.folder
        for name in ("state", "spool", "run"):
            (folder / name).mkdir(parents=True)
        for path in (folder, *folder.parents):  # jobs of other users read the configuration
            with contextlib.suppress(PermissionError):
                path.chmod(path.stat().st_mode | 0o011)
        key = folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        (folder / "run").chmod(0o755)
        self._run(
            "munged", "--force", f"--key-file={key}", f"--socket={folder}/run/munge.sock",
            f"--pid-file={folder}/run/munged.pid", f"--log-file={folder}/munged.log", f"--seed-file={folder}/run/seed",
        )  # fmt: skip
        port = _free_ports(1 + len(NODES))
        conf = CONF.format(
            host=socket.gethostname(), folder=folder, port=port, first=port + 1, last=port + len(NODES),
            user=psutil.Process().username(), task_plugin=task_plugin,
        )  # fmt: skip
        (folder / "slurm.conf").write_text(conf)
        (folder / "cgroup.conf").write_text(CGROUP_CONF)
        self._run("slurmctld")
        for node in NODES:
            self.start_node(node)
        until(lambda: set(self.nodes().values()) == {"idle"}, "idle nodes")

    def _run(self, *command: str) -> str:
        done = subprocess.run(
            command, env={**os.environ, **self.environment}, capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, (command, done.stderr)
        return done.stdout

    def command(self, *command: str) -> str:
        """The output of a Slurm command."""
        return self._run(*command)

    def nodes(self) -> dict[str, str]:
        """Each node's state."""
        return dict(line.split() for line in self._run("sinfo", "-h", "-N", "-o", "%N %t").splitlines())

    def jobs(self) -> list[dict[str, str]]:
        """Jobs that have not ended: id, name, state, node."""
        lines = self._run("squeue", "-h", "-o", "%i|%j|%T|%N").splitlines()
        return [dict(zip(("id", "name", "state", "node"), line.split("|"), strict=True)) for line in lines]

    def start_node(self, name: str) -> None:
        """Start a slurmd under its own host name."""
        kinds = ["--uts", "--mount"] if self.exposed else ["--uts"]
        self._run("unshare", *kinds, "sh", "-ec", f"{self.exposed}\nhostname {name}\nexec slurmd -N {name}")

    def kill_node(self, name: str) -> None:
        """SIGKILL the node's slurmd; its children continue."""
        os.kill(int((self.folder / f"run/slurmd-{name}.pid").read_text()), signal.SIGKILL)

    def node_of(self, job_id: str) -> str:
        return until(lambda: next((job["node"] for job in self.jobs() if job["id"] == job_id), ""), "the job's node")

    def cancel_all(self) -> None:
        self._run("scancel", "--user", psutil.Process().username())
        until(lambda: self.jobs() == [], "the jobs' end")

    def close(self) -> None:
        with contextlib.suppress(AssertionError):  # there are no jobs if the controller never started
            self.cancel_all()
        for path in sorted((self.folder / "run").glob("*.pid"), reverse=True):
            with contextlib.suppress(ValueError, psutil.NoSuchProcess):
                process = psutil.Process(int(path.read_text()))
                process.terminate()
                process.wait(20)
        for node in NODES:  # with cgroups version 1, task/cgroup leaves empty groups
            for cgroup in sorted(Path("/sys/fs/cgroup/cpuset").glob(f"slurm_{node}/**/"), reverse=True):
                cgroup.rmdir()


def exposing(paths: Sequence[Path], folder: Path) -> str:
    """Shell commands that make folders reachable for every user in a mount namespace, even below a closed folder.

    The closed folder, such as /root, is covered by one that contains only what must be reachable.
    """
    binds: list[str] = []
    covers: dict[Path, Path] = {}
    for path in (path.resolve() for path in paths):
        closed = next((parent for parent in reversed(path.parents) if not parent.stat().st_mode & stat.S_IXOTH), None)
        if closed is not None:
            cover = covers.setdefault(closed, folder / f"cover{len(covers)}")
            inner = cover / path.relative_to(closed)
            inner.mkdir(parents=True, exist_ok=True)
            binds.append(shlex.join(["mount", "--bind", str(path), str(inner)]))
    return "\n".join([*binds, *(shlex.join(["mount", "--rbind", str(b), str(a)]) for a, b in covers.items())])


@contextlib.contextmanager
def cluster(folder: Path, task_plugin: str = "task/affinity", exposed: str = "") -> Iterator[Cluster]:
    found = Cluster(folder, exposed)
    try:
        found.start(task_plugin)
        yield found
    finally:
        found.close()
