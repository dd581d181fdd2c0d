"""`taskloom demo`: a server, a worker and one experiment on this machine, from start to table."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import click

from gpt2core.process import launch
from taskloom import tables, watch
from taskloom.analysis.wording import counted
from taskloom.client import Client
from taskloom.commands.output import console, error_console, print_json, say_warnings
from taskloom.contract.experiments import ExperimentRequest
from taskloom.errors import EXIT_WORK_FAILED, TaskloomError
from taskloom.stopping import Stopped, Stopping

PATIENCE_S = 30.0  # for a process to start, or to stop
REPETITIONS = 6  # the fewest processes that give a 95 % interval of their median
MODELS: dict[str, dict[str, Any]] = {
    "small": {"model": "small", "batch": 4, "seq": 128, "steps": 12, "batch_slice": 1, "token_slice": 64},
    "gpt2-124m": {"model": "gpt2-124m", "batch": 4, "seq": 64, "steps": 5, "batch_slice": 1, "token_slice": 64},
}


class DemoFailed(TaskloomError):
    """The demo failed."""

    exit_code = EXIT_WORK_FAILED


def request(model: str, cores: int, repetitions: int) -> ExperimentRequest:
    """Serial, fork-join and task on 1 core and on all, with the same tiles, so that a difference is the scheduling."""
    threads = sorted({1, cores})
    return ExperimentRequest.model_validate(
        {
            "name": f"demo: {model}",
            "base": {**MODELS[model], "data": "stdlib"},
            "axes": {"scheduler": ["serial", "fork-join", "task"], "threads": threads},
            "exclude": [{"scheduler": "serial", "threads": each} for each in threads if each != 1],
            "repetitions": repetitions,
        }
    )


class Processes:
    """Child processes of the demo, stopped by their process ids."""

    def __init__(self, folder: Path, stopping: Stopping) -> None:
        self._folder, self._stopping = folder, stopping
        self._running: dict[str, subprocess.Popen[str]] = {}

    def start(self, name: str, *arguments: str) -> IO[str]:
        """Start a Taskloom process with its log in a file; return its standard output."""
        with self._stopping.held_back(), (self._folder / f"{name}.log").open("w") as log:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", f"taskloom.{name}", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,  # Ctrl-C reaches only the demo, which stops them in order
            )
            self._running[name] = process
        assert process.stdout
        return process.stdout

    def check(self) -> None:
        """Raise DemoFailed if one of them has ended."""
        for name, process in self._running.items():
            if (code := process.poll()) is not None:
                raise DemoFailed(f"the {name} ended with exit code {code}; its log is {self._folder / name}.log")

    def stop(self) -> None:
        """Stop the worker before the server, so that it can still hand back its run."""
        for process in reversed(self._running.values()):
            process.terminate()
            try:
                process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout:
                process.stdout.close()


def start(folder: Path, processes: Processes) -> str:
    """Start server and worker; return the server's URL. Raises DemoFailed."""
    database = folder / "taskloom.db"
    said = processes.start("server", "--port", "0", "--database-url", f"sqlite:///{database}")
    line = said.readline()
    if not line:
        raise DemoFailed(f"the server did not start:\n{(folder / 'server.log').read_text().strip()}")
    url = str(json.loads(line)["url"])
    processes.start("worker", "--server", url, "--spool", str(folder / "spool"), "--drain", "release")
    return url


def carry_out(model: str, repetitions: int, folder: Path, processes: Processes, as_json: bool, verbose: bool) -> int:
    """Run the demo and return its exit code."""
    out, notes = console(), error_console()
    began = time.monotonic()
    url = start(folder, processes)
    cores = launch.allowed_cores()
    with Client(url) as client:
        experiment = client.submit(request(model, len(cores), repetitions))
        text = f"server {url}, worker on cores {','.join(map(str, cores))}, experiment {experiment.id}: "
        notes.print(text + counted(experiment.runs, "run"), highlight=False, soft_wrap=True)
        finished = watch.until_finished(client, experiment.id, notes, check=processes.check)
        lost = experiment.runs - finished.by_state.get("succeeded", 0)
        if lost:
            out.print(tables.runs(client.runs(experiment.id)))
            raise DemoFailed(f"{lost} of {experiment.runs} runs did not succeed; logs and database are in {folder}")
        table = client.scaling(experiment.id)
    (folder / "scaling.json").write_text(table.model_dump_json(indent=2) + "\n")
    if as_json:
        print_json({"folder": str(folder), "experiment_id": experiment.id, "scaling": table.model_dump(mode="json")})
        return 0
    rows = f"{counted(repetitions, 'process')} a row"
    title = f"{model}: {counted(finished.runs, 'run')} in {time.monotonic() - began:.0f} s, {rows}"
    out.print(tables.scaling(table, title))
    out.print(table.base, markup=False, highlight=False, soft_wrap=True)
    say_warnings(out, table.warnings, table.brief, verbose)
    for line in (
        "",
        f"this table as JSON: {folder / 'scaling.json'}",
        "to see these results in the dashboard (API documentation: /docs), run",
        f"  taskloom serve --database-url sqlite:///{folder / 'taskloom.db'}",
        f"  and open http://127.0.0.1:8321/ui/experiment?id={experiment.id}",
    ):
        out.print(line, markup=False, highlight=False, soft_wrap=True)
    return 0


def with_processes(folder: Path, work: Callable[[Processes], int]) -> int:
    """Run `work` with processes that log to a folder, stop them in any case, and return the exit code."""
    stopping, code = Stopping(), EXIT_WORK_FAILED
    processes = Processes(folder, stopping)
    with stopping.listening():
        try:
            code = work(processes)
        except Stopped:
            click.echo("stopped", err=True)
        except TaskloomError as error:
            click.echo(f"error: {error}", err=True)
            code = error.exit_code
        finally:
            with contextlib.suppress(Stopped), stopping.held_back():
                processes.stop()
    return code
