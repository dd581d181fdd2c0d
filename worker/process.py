"""Process of `taskloom worker`. The first SIGTERM or SIGINT drains the worker; the second one stops it at once."""

from __future__ import annotations

import functools
import json
import os
import sys
from queue import SimpleQueue
from typing import Any

from gpt2core.node import peaks as roofs
from gpt2core.process import launch
from gpt2core.spec import preflight
from gpt2core.spec.errors import InputError
from taskloom.worker import affinity, builds, cache, orphan, signals
from taskloom.worker.agent import Agent, DrainAsked
from taskloom.worker.claim_loop import ClaimLoop
from taskloom.worker.client import ServerClient
from taskloom.worker.execution import Executor
from taskloom.worker.peaks import Measurement
from taskloom.worker.preflight import checks
from taskloom.worker.report import Report
from taskloom.worker.settings import parse
from taskloom.worker.spool import Spool
from taskloom.worker.standby import Command
from taskloom.worker.supervise import Supervisor

EXIT_OK, EXIT_STOPPED_AT_ONCE, EXIT_BAD_INPUT = 0, 1, 2


def main(
    arguments: list[str],
    command: Command = launch.command,
    peaks_command: Command = roofs.command,
    grace_s: float | None = None,
) -> int:
    """Run a worker until it stops; return the exit code.

    The commands start a trainer and measure peaks; nothing from the network can change them. grace_s: seconds between
    SIGTERM and SIGKILL for a trainer; None: as in the settings.
    """
    only_checks = arguments == [preflight.OPTION]
    read = functools.cache(lambda: parse([] if only_checks else arguments, os.environ))
    if only_checks:
        preflight.tell(checks(read), sys.stdout)
        return EXIT_OK
    try:
        preflight.require(checks(read))
        settings = read()
        client = ServerClient(settings.server, settings.token)
        spool = Spool(settings.spool)
    except (InputError, OSError) as error:
        known = {"slug": error.slug, **error.fields()} if isinstance(error, InputError) else {}
        document = {"error": str(error), **known}
        print(json.dumps(document) if "--json" in arguments else f"error: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    report = Report(settings.as_json, settings.quiet)
    if settings.job is not None and settings.job.unknown is not None:
        report.say("end-unknown", f"the end of this Slurm job is unknown: {settings.job.unknown}; set --walltime")
    if not spool.is_locked:
        report.say("no-locks", f"the file system of {settings.spool} has no locks: no other worker may use this spool")
    cache.settle(settings.spool, report)
    try:
        builds.keep()
    except OSError as error:
        report.say("build-not-kept", f"the trainer's build cannot be stored for later comparisons: {error}")
    ended = orphan.end(settings.spool)
    if ended is not None:
        report.say("orphan-killed", f"killed trainer {ended}, left by an earlier worker")
    inbox: SimpleQueue[Any] = SimpleQueue()
    agent = Agent(settings.drain)
    supervisor = Supervisor(agent, inbox, settings.grace_s if grace_s is None else grace_s)

    def drain() -> None:
        agent.draining = True
        inbox.put(DrainAsked())

    def stop_at_once() -> None:
        supervisor.kill()
        os._exit(EXIT_STOPPED_AT_ONCE)  # without waiting: undelivered results are in the spool

    signals.listen(lambda: stop_at_once() if agent.draining else drain())
    affinity.raise_priority()
    try:
        measurement = Measurement(settings, inbox, report, peaks_command)
        executor = Executor(settings, supervisor, command, launch.allowed_cores(), spool.new_folder)
        code = ClaimLoop(settings, client, agent, inbox, spool, executor, measurement, report).run()
        report.say("stopped", "worker stopped", exit_code=code)
        return code
    finally:
        client.close()
        spool.close()
