"""Settings of a worker: options first, then TASKLOOM_* of the environment, then defaults."""

from __future__ import annotations

import argparse
import hashlib
import re
import shlex
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, cast, get_args
from urllib.parse import urlsplit

from gpt2core.node import host
from gpt2core.process.child import GRACE_S
from gpt2core.process.launch import allowed_cores
from gpt2core.process.ranks import over_nodes
from gpt2core.spec.errors import ConfigError
from gpt2core.spec.fields import parse_cores
from gpt2core.spec.settings import NoHome, expanded, state_folder
from taskloom.contract import http, key_files, options
from taskloom.contract.keys import authorization
from taskloom.contract.labels import MOST_NODES
from taskloom.worker import slurm
from taskloom.worker.slurm import SlurmJob
from taskloom.worker.walltime import Walltime, parse_s

Drain = Literal["finish", "release"]
Peaks = Literal["once", "forced", "idle", "never"]
MOST_CHARS = 200  # of a worker's id, and of a label's key and value
MOST_OWN_LABELS = 40  # of an operator; builds, runtimes and MPI have others, and a server takes 64 in all
SPOOL = "--spool or TASKLOOM_SPOOL"  # to set where there is no home folder


@dataclass(frozen=True)
class Settings:
    """An operator's settings of one worker."""

    server: str
    token: str | None = field(repr=False)
    worker_id: str
    cores: tuple[int, ...]
    labels: Mapping[str, str]
    once: bool
    resend: bool
    drain: Drain
    spool: Path
    data_root: Path | None
    checkpoint_root: Path | None
    wait_s: float
    walltime: Walltime
    job: SlurmJob | None
    idle_exit_s: float | None
    grace_s: float
    peaks: Peaks
    nodes: int
    launcher: tuple[str, ...]
    as_json: bool
    quiet: bool


def core_ranges(cores: Sequence[int]) -> str:
    """Core numbers in Linux's notation, with "." instead of "," so that they can be part of a name: 0-3.8"""
    parts: list[list[int]] = []
    for core in sorted(cores):
        if parts and core == parts[-1][1] + 1:
            parts[-1][1] = core
        else:
            parts.append([core, core])
    return ".".join(str(low) if low == high else f"{low}-{high}" for low, high in parts)


def default_id(cores: Sequence[int]) -> str:
    """The id of a worker that is given none. Many cores with gaps would be too long: their hash then names them."""
    found = default_prefix() + core_ranges(cores)
    if len(found) <= MOST_CHARS:
        return found
    return f"{default_prefix()}{len(cores)}-cores-{hashlib.sha256(found.encode()).hexdigest()[:12]}"


def default_prefix() -> str:
    """Beginning of the default ids of this node's workers."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", socket.gethostname()) + ":"


def default_spool(worker_id: str) -> Path:
    """Default folder of undelivered results, one for each worker of a node. It survives restarts."""
    return state_folder(SPOOL) / "taskloom" / "spool" / worker_id


def is_default_spool(folder: Path, worker_id: str) -> bool:
    """Whether a folder is the default spool of a worker."""
    try:
        return folder == default_spool(worker_id)
    except NoHome:
        return False


def _server(url: str) -> str:
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        known = False
    if not known:
        raise ConfigError("server", http.shown(url), f"a URL such as {options.DEFAULT_SERVER}")
    return url.rstrip("/")


def _token(token: str | None) -> str | None:
    authorization(token)  # refused here, not by the first request
    return token


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise ConfigError("label", text, "key=value")
    if len(key) > MOST_CHARS or len(value) > MOST_CHARS or not text.isprintable():
        raise ConfigError("label", text, f"printable text of at most {MOST_CHARS} characters on each side of =")
    return key, value


def _cores(text: str | None, job: SlurmJob | None) -> tuple[int, ...]:
    allowed = allowed_cores()
    if not text:
        physical = {host.smt_siblings(core) or str(core) for core in allowed}
        if job is not None and job.cpus is not None and len(physical) > job.cpus:
            accepted = (
                f"at most the number of cores of Slurm job {job.job_id}, {job.cpus}; Slurm does not bind the job to "
                "its cores (TaskPlugin), so request --exclusive, or name the cores with --cores"
            )
            raise ConfigError("cores", core_ranges(allowed), accepted)
        return tuple(allowed)
    cores = parse_cores(text)
    if not set(cores) <= set(allowed):
        raise ConfigError("cores", text, "cores this process may use: " + ",".join(map(str, allowed)))
    return cores


def _root(name: str, text: str | None) -> Path | None:
    if not text:
        return None
    root = expanded(Path(text), name)
    if not root.is_dir():
        raise ConfigError(name, text, "an existing folder")
    return root.resolve()


def _default_grace_s(job: SlurmJob | None) -> float:
    """Seconds between SIGTERM and SIGKILL for a trainer. In a Slurm job they leave time to return the run to the queue
    before Slurm kills the worker."""
    return GRACE_S if job is None or job.kill_wait_s is None else min(GRACE_S, job.kill_wait_s / 3)


def _nodes(text: str | None, job: SlurmJob | None) -> int:
    if text is None:
        return 1 if job is None else job.nodes
    if not re.fullmatch("[0-9]{1,9}", text) or not 1 <= int(text) <= MOST_NODES:
        raise ConfigError("nodes", text, f"a whole number from 1 to {MOST_NODES}")
    return int(text)


def _launcher(text: str) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise ConfigError("launcher", text, f"a command line: {error}") from None
    if not words:
        raise ConfigError("launcher", text, "a command line")
    over_nodes(words, 2, 2, 1)  # refused here, not by the first run
    return words


def parser() -> argparse.ArgumentParser:
    """Parser of the worker's options. The token is not an option: every user of a node can read arguments."""
    out = argparse.ArgumentParser(prog="taskloom worker", description=__doc__)
    options.add_to(out, options.WORKER)
    return out


def parse(arguments: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """Settings from options and environment. Raises ConfigError for a value that is not accepted, FileError for a key's
    file."""
    given = parser().parse_args(arguments)
    variables = {each.name.replace("-", "_"): each.variable for each in options.WORKER}

    def value(name: str) -> str | None:
        chosen = getattr(given, name)
        return chosen if chosen is not None else environment.get(variables[name]) or None

    job = slurm.job(environment)
    cores = _cores(value("cores"), job)
    worker_id = value("worker_id") or default_id(cores)
    if not re.fullmatch(r"[\w.:@-]+", worker_id) or len(worker_id) > MOST_CHARS or worker_id.strip(".") == "":
        raise ConfigError("worker_id", worker_id, f"1 to {MOST_CHARS} letters, digits or _ . : @ -")
    drain = value("drain") or "finish"
    if drain not in ("finish", "release"):
        raise ConfigError("drain", drain, "finish or release")
    peaks = value("peaks") or "once"
    if peaks not in get_args(Peaks):
        raise ConfigError("peaks", peaks, "once, forced, idle or never")
    labels = given.label or list(filter(None, map(str.strip, environment.get(variables["label"], "").split(","))))
    if len(labels) > MOST_OWN_LABELS:
        raise ConfigError("label", len(labels), f"at most {MOST_OWN_LABELS} labels")
    label_of = dict(map(_label, labels))
    if len(label_of) < len(labels):
        raise ConfigError("label", ",".join(labels), "each key once")
    wait_s = value("wait_s") or 25.0
    try:
        wait_s = float(wait_s)
    except ValueError:
        raise ConfigError("wait_s", wait_s, "seconds from 0 to 25") from None
    if not 0 <= wait_s <= 25:
        raise ConfigError("wait_s", wait_s, "seconds from 0 to 25")
    spool = value("spool")
    idle_exit, grace = value("idle_exit"), value("grace")
    return Settings(
        server=_server(value("server") or options.DEFAULT_SERVER),
        token=_token(key_files.token(environment)),
        worker_id=worker_id,
        cores=cores,
        labels=label_of,
        once=given.once,
        resend=given.resend,
        drain="release" if drain == "release" else "finish",
        spool=expanded(Path(spool), SPOOL) if spool else default_spool(worker_id),
        data_root=_root("data_root", value("data_root")),
        checkpoint_root=_root("checkpoint_root", value("checkpoint_root")),
        wait_s=wait_s,
        walltime=Walltime.of(value("walltime"), job),
        job=job,
        idle_exit_s=None if idle_exit is None else parse_s(idle_exit, "idle_exit"),
        grace_s=_default_grace_s(job) if grace is None else parse_s(grace, "grace"),
        peaks=cast(Peaks, peaks),
        nodes=_nodes(value("nodes"), job),
        launcher=_launcher(value("launcher") or options.DEFAULT_LAUNCHER),
        as_json=given.json,
        quiet=given.quiet,
    )
