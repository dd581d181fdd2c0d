"""Process of `taskloom provision`. SIGTERM or SIGINT ends it; its Slurm jobs continue."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from gpt2core.spec import preflight
from gpt2core.spec.errors import InputError
from taskloom.contract import http, logs, options
from taskloom.contract.retry import Refused
from taskloom.provisioner.jobs import Jobs
from taskloom.provisioner.loop import Provisioner, log
from taskloom.provisioner.metrics import Metrics
from taskloom.provisioner.pools import read
from taskloom.provisioner.preflight import checks, checks_of, state_file
from taskloom.provisioner.server import Server

EXIT_OK, EXIT_FAILED, EXIT_BAD_INPUT, EXIT_SERVER = 0, 1, 2, 3


def parser() -> argparse.ArgumentParser:
    out = argparse.ArgumentParser(prog="taskloom provision", description=__doc__)
    out.add_argument("pools", type=Path)
    options.add_to(out, options.PROVISION)
    return out


def main(arguments: Sequence[str]) -> int:
    if arguments[:1] == [preflight.OPTION]:  # and perhaps the pools file
        preflight.tell(checks_of(next(iter(arguments[1:]), None)), sys.stdout)
        return EXIT_OK
    given = parser().parse_args(arguments)
    logs.to_standard_error(logs.JsonFormatter(), "httpx")
    try:
        pools = read(given.pools, given.server)
        preflight.require(checks(pools, given.state))
        state = state_file(pools, given.state)
        jobs = Jobs(pools.name, state)
        server = Server(pools.server, pools.token())
        metrics = Metrics(given.metrics_port)
    except (InputError, OSError, ValueError) as error:
        _tell(error, given.json)
        return EXIT_BAD_INPUT
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        provisioner = Provisioner(pools, jobs, server, metrics)
        if given.plan:
            lines = provisioner.plan()
            if lines is not None:
                print(json.dumps({"plan": lines}) if given.json else logs.printable_lines("\n".join(lines)))
            return EXIT_FAILED if lines is None else EXIT_OK
        address = http.shown(pools.server)
        text = f"provisioning {len(pools.pools)} pools for {address}"
        if not jobs.is_locked:
            log("no-locks", f"the file system of {state} has no locks: no other provisioner may use this file")
        log("started", text, server=address, metrics=metrics.url)
        provisioner.run(stop, given.once)
        log("stopped", "provisioner stopped; its jobs continue")
    except Refused as error:
        _tell(error, given.json)
        return EXIT_SERVER
    finally:
        server.close()
        jobs.close()
    return EXIT_OK


def _tell(error: Exception, as_json: bool) -> None:
    """Print an error, which may have words of the server."""
    text = json.dumps({"error": str(error)}) if as_json else logs.printable_lines(f"error: {error}")
    print(text, file=sys.stderr)
