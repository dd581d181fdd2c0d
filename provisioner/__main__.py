"""Process of `taskloom provision`. SIGTERM or SIGINT ends it; its Slurm jobs continue."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import httpx

from gpt2core.spec.errors import ConfigError
from gpt2core.spec.settings import expanded, home
from gpt2core.spec.threads import end_with_threads
from taskloom.contract import logs, options
from taskloom.contract.retry import Refused
from taskloom.provisioner.jobs import AlreadyRunning, Jobs
from taskloom.provisioner.loop import Provisioner, log
from taskloom.provisioner.metrics import Metrics
from taskloom.provisioner.pools import PoolsFileRefused, read
from taskloom.provisioner.server import Server

EXIT_OK, EXIT_FAILED, EXIT_BAD_INPUT, EXIT_SERVER = 0, 1, 2, 3


def default_state(name: str) -> Path:
    """Path of a provisioner's state file."""
    folder = os.environ.get("XDG_STATE_HOME") or home("--state") / ".local/state"
    return Path(folder) / "taskloom" / f"provision-{name}.json"


def parser() -> argparse.ArgumentParser:
    out = argparse.ArgumentParser(prog="taskloom provision", description=__doc__)
    out.add_argument("pools", type=Path)
    options.add_to(out, options.PROVISION)
    return out


def main(arguments: Sequence[str]) -> int:
    given = parser().parse_args(arguments)
    logs.to_standard_error(logs.JsonFormatter(), "httpx")
    try:
        pools = read(given.pools, given.server)
        token = pools.token()
        _folder("log_folder", expanded(pools.log_folder, "log_folder to a whole path"))
        state = Path(given.state) if given.state else default_state(pools.name)
        _folder("--state", state.parent)
        jobs = Jobs(pools.name, state)
        server = Server(pools.server, token)
        metrics = Metrics(given.metrics_port)
    except (PoolsFileRefused, AlreadyRunning, OSError, ValueError, httpx.InvalidURL) as error:
        print(json.dumps({"error": str(error)}) if given.json else f"error: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        provisioner = Provisioner(pools, jobs, server, metrics)
        if given.plan:
            lines = provisioner.plan()
            if lines is not None:
                print(json.dumps({"plan": lines}) if given.json else "\n".join(lines))
            return EXIT_FAILED if lines is None else EXIT_OK
        text = f"provisioning {len(pools.pools)} pools for {pools.server}"
        if not jobs.is_locked:
            log("no-locks", f"the file system of {state} has no locks: no other provisioner may use this file")
        log("started", text, server=pools.server, metrics=metrics.url)
        provisioner.run(stop, given.once)
        log("stopped", "provisioner stopped; its jobs continue")
    except Refused as error:
        print(json.dumps({"error": str(error)}) if given.json else f"error: {error}", file=sys.stderr)
        return EXIT_SERVER
    finally:
        server.close()
        jobs.close()
    return EXIT_OK


def _folder(name: str, folder: Path) -> None:
    """Create a folder. Raises ConfigError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(name, str(folder), f"a folder that can be written ({error.strerror})") from error


if __name__ == "__main__":
    end_with_threads()
    sys.exit(main(sys.argv[1:]))
